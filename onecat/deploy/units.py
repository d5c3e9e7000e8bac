"""systemd units and what belongs to them, as text: of a server in a container, and of a native one.

`onecat.deploy.unit_server` installs the first; the second is for people who install it themselves.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.config.schema import Restart
from onecat.deploy import health_gate, with_secret
from onecat.deploy.container_spec import SERVER_PORT, STOP_SECONDS, ContainerSpec, run_argv
from onecat.resources import render_template

if TYPE_CHECKING:
    from onecat.hosts import Machine

# `docker stop` waits STOP_SECONDS before it kills; systemd waits a little longer than that.
_STOP_MARGIN_SECONDS = 15
LONGEST_LOADING_SECONDS = 600
# A field of the journal (systemd.exec(5), LogExtraFields=).
RELEASE_FIELD = "ONECAT_RELEASE"
# What the image's entry point ends with when it cannot have its API key: starting again would not help.
UNUSABLE_CONFIGURATION = 78


def quote(word: str) -> str:
    """One word of an Exec line (systemd.service(5), COMMAND LINES): no specifier, variable or escape is expanded."""
    escaped = _escaped(word).replace("$", "$$")
    plain = word and all(letter.isalnum() or letter in "_@%+=:,./-" for letter in word)
    return escaped if plain else f'"{escaped}"'


def command_line(argv: Sequence[str]) -> str:
    """An argv as the value of ExecStart and its relatives."""
    return " ".join(quote(word) for word in argv)


def assignment(name: str, value: str) -> str:
    """One Environment= value (systemd.exec(5)); `$` has no meaning there."""
    return f'"{name}={_escaped(value)}"'


def _path(path: str) -> str:
    """One path of a list of them (systemd.exec(5), ReadWritePaths)."""
    return f'"{_escaped(path)}"' if " " in path else _escaped(path)


def _escaped(text: str) -> str:
    """For a place between double quotes; systemd takes a carriage return for the end of a line, too."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    return "".join(f"\\x{ord(each):02x}" if each < " " or each == "\x7f" else each for each in escaped)


def start_limit_seconds(restart: Restart) -> int:
    """A window wide enough for `max_crashes` crashes in a row, each after up to LONGEST_LOADING_SECONDS of loading."""
    return int(restart.max_crashes * (restart.backoff_max_seconds + LONGEST_LOADING_SECONDS))


def native_unit(
    deployment: str,
    number: int | None,
    argv: Sequence[str],
    env: Mapping[str, str],
    secret_file: str | None,
    url: str,
    silence_seconds: float,
    restart: Restart,
    stop_seconds: float,
    writable: str,
    user: tuple[int, int] | None = None,
    python: str = sys.executable,
    helpers: str = str(Path(health_gate.__file__).parent),
) -> str:
    """The unit of a native server.

    Parameters:
        number: of the release; None for a unit that is no release's.
        secret_file: file with the API key, or None; the unit holds its path only.
        silence_seconds: of a start that shows no sign of life, after which it has failed.
        writable: directory the server may write to (its home and caches).
        user: (uid, gid) it runs as; None for those of this process. Numbers, because not every user has a name here.
        python: a Python of the host, 3.10 or later; helpers: directory there with health_gate.py and with_secret.py.
    """
    uid, gid = (os.getuid(), os.getgid()) if user is None else user
    start = [*argv]
    if secret_file is not None:
        helper = f"{helpers}/{Path(with_secret.__file__).name}"
        start = [python, "-I", helper, "VLLM_API_KEY", secret_file, "--", *argv]
    path = f"{Path(argv[0]).parent}:/usr/local/bin:/usr/bin:/bin"
    gate = [python, "-I", f"{helpers}/{Path(health_gate.__file__).name}", f"{url}/health", f"{silence_seconds:g}"]
    return render_template(
        "systemd/native.service.j2",
        deployment=deployment,
        number=number,
        user=uid,
        group=gid,
        environment=[assignment(*item) for item in {"HOME": str(writable), "PATH": path, **env}.items()],
        exec_start=command_line(start),
        # Two variables of systemd's (systemd.exec(5)): the only words that are to be expanded.
        health_gate=f"{command_line(gate)} $MAINPID --journal $INVOCATION_ID",
        identifier=f"onecat-{deployment}",
        stop_seconds=int(stop_seconds) + _STOP_MARGIN_SECONDS,
        max_crashes=restart.max_crashes,
        start_limit_seconds=start_limit_seconds(restart),
        restart_seconds=max(1, int(restart.backoff_seconds)),
        writable=_path(str(writable)),
    )


def container_unit(
    number: int | None,
    deployment: str,
    spec: ContainerSpec,
    restart: Restart,
    docker_host: str | None,
    *,
    docker: str = "/usr/bin/docker",
    gate: str,
    state_directory: str | None = None,
    identity: str | None = None,
) -> str:
    """The unit of a server in a container: docker run in the foreground.

    Parameters:
        spec: image: best an id, which means the same for ever. secret_file: a file that the container's user may
            read, for a unit that onecat looks after; else the operator's own, which that user often may not read.
            Such a unit copies it at each start into its runtime directory, which systemd keeps as long as the unit
            runs (systemd.exec(5), RuntimeDirectory=), for that user alone.
        docker: Docker's client on the host. gate: path there of the `gate_script`.
        state_directory: where `onecat.deploy.unit_server` says on the host whether the release may start; None for a
            unit that people look after themselves.
        identity: what the journal notes as RELEASE_FIELD with each line of the server.
    """
    runtime_directory = f"onecat-{deployment}"
    install_key = None
    if spec.secret_file is not None and state_directory is None:
        uid, _, gid = spec.user.partition(":")
        copy = f"/run/{runtime_directory}/api_key"
        argv = ["/usr/bin/install", "-o", uid, "-g", gid, "-m", "0400", spec.secret_file, copy]
        install_key = command_line(argv)
        spec = replace(spec, secret_file=copy)
    # Without HOME the client would look for its settings in a directory of nobody's.
    environment = {"DOCKER_CONFIG": "/nonexistent", **({"DOCKER_HOST": docker_host} if docker_host else {})}
    return render_template(
        "systemd/container.service.j2",
        deployment=deployment,
        number=number,
        environment=[assignment(*each) for each in environment.items()],
        runtime_directory=runtime_directory,
        install_key=install_key,
        state_directory=state_directory,
        remove=_quiet([docker, "rm", "--force", spec.name]),
        release_field=None if identity is None else f"{RELEASE_FIELD}={identity}",
        unusable_configuration=UNUSABLE_CONFIGURATION,
        exec_start=command_line(run_argv(spec, docker)),
        health_gate=command_line(["/bin/sh", gate]),
        # It waits STOP_SECONDS, which the container was made with.
        stop=_quiet([docker, "stop", spec.name]),
        stop_seconds=STOP_SECONDS + _STOP_MARGIN_SECONDS,
        max_crashes=restart.max_crashes,
        start_limit_seconds=start_limit_seconds(restart),
        restart_seconds=max(1, int(restart.backoff_seconds)),
        identifier=spec.name,
        private_network=docker_host is None or docker_host.startswith("unix://"),
    )


def _quiet(argv: Sequence[str]) -> str:
    """A command line without the program's output, which would stand in the journal among the server's lines."""
    return command_line(["/bin/sh", "-c", 'exec "$@" > /dev/null 2>&1', "sh", *argv])


def gate_script(spec: ContainerSpec, docker: str = "/usr/bin/docker") -> str:
    """The script that `container_unit` runs after the start; it ends when the server is ready, or has been silent for
    spec.silence_seconds.

    Needs a POSIX shell, Docker's client and journalctl on the host and python3 in the image, and nothing of onecat.
    """
    script = render_template(
        "systemd/health-gate.sh.j2",
        container=shlex.quote(spec.name),
        docker=shlex.quote(docker),
        url=f"http://127.0.0.1:{SERVER_PORT}/health",
        silence_seconds=f"{spec.silence_seconds:g}",
    )
    return f"{script.rstrip()}\n{Path(health_gate.__file__).read_text(encoding='utf-8')}"


def verify(machine: Machine, path: str) -> tuple[str, ...] | None:
    """What `systemd-analyze verify` objects to in the unit at `path` of a host; None where it is not installed."""
    if machine.run(["sh", "-c", "command -v systemd-analyze"]).exit_code != 0:
        return None
    done = machine.run(["systemd-analyze", "verify", path])
    name = path.rpartition("/")[2]
    return tuple(line for line in done.stderr.decode(errors="replace").splitlines() if name in line)
