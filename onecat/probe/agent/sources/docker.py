"""Docker: whether its daemon is there and answers, and its client."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH111, PTH114, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Late, Unknown

re = Late("re")

COMPOSE_PLUGINS = (
    "/usr/local/lib/docker/cli-plugins/docker-compose",
    "/usr/local/libexec/docker/cli-plugins/docker-compose",
    "/usr/lib/docker/cli-plugins/docker-compose",
    "/usr/libexec/docker/cli-plugins/docker-compose",
)
"""Source: https://docs.docker.com/compose/install/linux/"""


def docker(machine, emit):
    address = docker_address(machine)
    scheme, _, place = address.partition("://")
    if scheme == "unix" and not os.path.exists(place):
        has_client = machine.find_program("docker") is not None
        state = "unreachable" if has_client else "absent"
        emit(docker={"socket": address, "state": state, "error": place + " does not exist"})
        return
    if scheme not in ("unix", "tcp") or (scheme == "tcp" and os.environ.get("DOCKER_TLS_VERIFY")):
        raise Unknown("error", "DOCKER_HOST is " + address + ": this probe speaks unix:// and plain tcp:// only")
    # Most of what there is to ask needs a daemon; hosts without one are spared it.
    from onecat.probe.agent.sources.docker_daemon import ask

    ask(machine, address, emit)


def docker_address(machine):
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    system = machine.path("/var/run/docker.sock")
    rootless = os.path.join(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}"), "docker.sock")
    if machine.is_running and not os.path.exists(system) and os.path.exists(rootless):
        return "unix://" + rootless
    return "unix://" + system


def docker_client(machine, emit):
    """Versions of the client's programs, which are large and slow to start."""
    program = machine.find_program("docker")
    if program is None or not machine.is_running:
        return
    emit(doing="running docker --version")
    _, output, _ = machine.run([program, "--version"])
    match = re.search(r"version ([\w.+~-]+)", output)
    if match and "podman" not in output:
        emit(docker={"client_version": match.group(1)})
    plugins = (os.path.expanduser("~/.docker/cli-plugins/docker-compose"), *COMPOSE_PLUGINS)
    compose = next((path for path in plugins if os.access(path, os.X_OK)), machine.find_program("docker-compose"))
    if compose:
        emit(doing="running docker-compose version")
        code, output, _ = machine.run([compose, "version", "--short"])
        if code == 0 and output.strip():
            emit(docker={"compose_version": output.split()[-1].lstrip("v")})


SOURCES = {"docker": docker, "docker-client": docker_client}
