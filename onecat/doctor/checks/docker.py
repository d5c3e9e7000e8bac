"""The Docker daemon."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements, services
from onecat.doctor.context import Context
from onecat.doctor.findings import Status
from onecat.doctor.packages import family
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import told, version_key

INSTALL_GUIDE = "https://docs.docker.com/engine/install/"
POST_INSTALL = "https://docs.docker.com/engine/install/linux-postinstall/"
LOGGING = "https://docs.docker.com/config/containers/logging/configure/"
GPU_REQUESTS = "19.03"
"""The first Docker with --gpus."""
ONE_SHOT_STATISTICS = ("20.10", (1, 41))
"""The first Docker, and its API, with one-shot statistics, from which `onecat up` sees that a server is at work."""


@check(
    "docker.daemon",
    title="The Docker daemon answers this user",
    why="Images are built and servers run as containers through the daemon.",
    fix=(f"install Docker: {INSTALL_GUIDE}", "sudo systemctl enable --now docker", "sudo usermod -aG docker $USER"),
    source=(INSTALL_GUIDE, POST_INSTALL),
    requires=(requirements.container_possible,),
)
def docker_daemon(context: Context) -> Iterator[Verdict]:
    """What the daemon's socket says to /version and /info. A fault only where the profile cannot do without it."""
    docker = context.facts.docker
    is_needed = context.runtimes == ("container",)
    bad: Status = "fail" if is_needed else "info"
    effect = "" if is_needed else ": servers can run natively only" if context.profile else ": no containers"
    note = context.facts.note("docker")
    if docker is None:
        if note is not None and note.kind == "timeout":
            yield Verdict(
                bad,
                f"The Docker daemon does not answer{effect}",
                evidence=(note.text,),
                fix=("sudo systemctl restart docker", "sudo journalctl -u docker --since -1h"),
            )
        else:
            yield Verdict("skip", f"Not checked: {context.why_absent('docker', 'no Docker facts were collected')}")
        return
    api = f"API {docker.api_version}" if docker.api_version else None
    storage = f"storage {docker.storage_driver}" if docker.storage_driver else None
    evidence = (": ".join(filter(None, (docker.socket, docker.error or docker.state))),)
    if docker.state == "reachable":
        yield Verdict(
            "pass",
            f"Docker {docker.server_version} answers" if docker.server_version else "The Docker daemon answers",
            evidence=(", ".join(filter(None, (docker.socket, api, storage))),),
        )
    elif docker.state == "forbidden":
        user = context.facts.user or "$USER"
        yield Verdict(
            bad,
            f"The Docker daemon refuses the user {user}{effect}",
            evidence=evidence,
            fix=(f"sudo usermod -aG docker {user}", "then log in again (members of this group can become root)"),
        )
    elif docker.state == "absent":
        yield Verdict(bad, f"Docker is not installed{effect}", evidence=evidence, fix=_install(context))
    else:
        yield Verdict(
            bad,
            f"No Docker daemon answers{effect}",
            evidence=evidence,
            fix=(
                services.start(context.facts.operating_system, "docker"),
                "or, for a daemon elsewhere: export DOCKER_HOST=unix://PATH",
            ),
        )


def _install(context: Context) -> tuple[str, ...]:
    guide = f"install Docker: {INSTALL_GUIDE}"
    known = {"debian": "sudo apt-get install docker.io", "suse": "sudo zypper install docker"}
    system = context.facts.operating_system
    if system is not None and (system.id or "").lower() in ("openeuler", "kylin", "anolis"):
        return ("sudo dnf install docker-engine", "sudo systemctl enable --now docker")
    return (known.get(family(system) or "", guide),)


@check(
    "docker.version",
    title="Docker is new enough",
    why="GPUs are asked for with --gpus, which came with Docker 19.03; onecat watches its containers with statistics "
    "that came with 20.10.",
    fix=(f"update Docker: {INSTALL_GUIDE}",),
    source=(
        "https://github.com/moby/moby/issues/28642",
        "https://github.com/docker/docker-py/pull/3089",
    ),
    requires=(requirements.container_possible, requirements.docker_reachable),
)
def docker_version(context: Context) -> Iterator[Verdict]:
    """The version of the daemon, or of its API where only that is known."""
    docker = context.facts.docker
    assert docker is not None
    version, api = version_key(docker.server_version or ""), version_key(docker.api_version or "")
    evidence = (f"Docker {told(docker.server_version)}, API {told(docker.api_version)}",)
    old = f"API {docker.api_version}" if api else f"version {docker.server_version}"
    old = f"API {docker.api_version}" if api else f"version {docker.server_version}"
    if not version and not api:
        yield Verdict("skip", "Not checked: the version of the daemon is not known")
    elif version and version < version_key(GPU_REQUESTS):
        yield Verdict(
            "fail" if context.wants_gpus and context.runtimes == ("container",) else "warn",
            f"Docker {docker.server_version} cannot give GPUs to containers: --gpus came with {GPU_REQUESTS}",
            evidence=evidence,
            fix=(f"update Docker: {INSTALL_GUIDE}",),
        )
    elif api < ONE_SHOT_STATISTICS[1] if api else version < version_key(ONE_SHOT_STATISTICS[0]):
        yield Verdict(
            "warn",
            f"Docker is too old for onecat's containers: {old}",
            evidence=(*evidence, "needed: Docker 20.10 (API 1.41) or newer"),
            fix=(f"update Docker: {INSTALL_GUIDE}",),
        )
    else:
        yield Verdict("pass", f"Docker {docker.server_version or docker.api_version} is new enough", evidence=evidence)


@check(
    "docker.storage-driver",
    title="Docker stores images in layers",
    why="The vfs driver copies a whole image for each layer and each container: an engine image of 20 GB becomes "
    "hundreds.",
    fix=('"storage-driver": "overlay2" in /etc/docker/daemon.json; images have to be pulled or built anew then',),
    source=("https://docs.docker.com/engine/storage/drivers/select-storage-driver.md",),
    requires=(requirements.container_possible, requirements.docker_reachable),
)
def docker_storage_driver(context: Context) -> Iterator[Verdict]:
    """The storage driver that docker info names."""
    docker = context.facts.docker
    assert docker is not None
    evidence = (f"docker info: Storage Driver: {docker.storage_driver}",)
    if not docker.storage_driver:
        yield Verdict("skip", "Not checked: the storage driver is not known")
    elif docker.storage_driver == "vfs":
        yield Verdict(
            "warn",
            "Docker stores a whole copy of an image for each of its layers (vfs)",
            evidence=evidence,
            fix=(
                'write "storage-driver": "overlay2" in /etc/docker/daemon.json, then: sudo systemctl restart docker',
                "images have to be pulled or built anew then",
            ),
        )
    else:
        yield Verdict("pass", f"Docker stores images with {docker.storage_driver}", evidence=evidence)


@check(
    "docker.log-rotation",
    title="Docker does not let logs fill the disk",
    why="By default the output of a container is kept for ever: a server that logs each request fills the disk in "
    "weeks. The containers of onecat bring limits of their own.",
    fix=('"log-opts": {"max-size": "50m", "max-file": "4"} in /etc/docker/daemon.json',),
    source=(LOGGING,),
    requires=(requirements.container_possible, requirements.docker_reachable),
)
def docker_log_rotation(context: Context) -> Iterator[Verdict]:
    """The daemon's default logging driver and its max-size."""
    docker = context.facts.docker
    assert docker is not None
    if docker.logging_driver is None:
        yield Verdict("skip", "Not checked: the logging driver is not known")
    elif docker.logging_driver != "json-file":
        yield Verdict("pass", f"Docker logs to {docker.logging_driver}")
    elif docker.log_options is None:
        yield Verdict("skip", "Not checked: the daemon's settings could not be read (--sudo)")
    elif "max-size" in dict(docker.log_options):
        yield Verdict("pass", f"Logs of containers end at {dict(docker.log_options)['max-size']}")
    else:
        yield Verdict(
            "info",
            "Logs of containers that set no limit themselves grow without end",
            evidence=("json-file without max-size",),
            fix=(
                'write "log-opts": {"max-size": "50m", "max-file": "4"} in /etc/docker/daemon.json',
                "then: sudo systemctl restart docker (it applies to containers that are made anew)",
            ),
        )


@check(
    "docker.compose",
    title="Compose can ask for GPUs",
    why="Compose knows `devices:` under a service's reservations from 1.28 on; older ones refuse the file.",
    fix=("install the Compose plugin: https://docs.docker.com/compose/install/linux/",),
    source=("https://docs.docker.com/compose/gpu-support", "https://github.com/Sygil-Dev/sygil-webui/issues/490"),
    requires=(requirements.container_possible,),
)
def docker_compose(context: Context) -> Iterator[Verdict]:
    """The version of Docker Compose, and whether podman-compose is there, which leaves out what it does not know."""
    docker, tools = context.facts.docker, context.facts.tools
    version = docker.compose_version if docker else None
    podman = tools.path("podman-compose") if tools else None
    if podman is not None:
        yield Verdict(
            "info",
            "podman-compose leaves out what it does not know, as ipc and shm_size, without a word",
            "podman-compose",
            (podman,),
            fix=("see what a container got: podman inspect --format '{{.HostConfig.ShmSize}}' NAME",),
            source=("https://github.com/vllm-project/vllm/issues/1393",),
        )
    key = version_key((version or "").lstrip("v"))
    if not key:
        if podman is None:
            yield Verdict("skip", "Not checked: there is no Compose, or its version is not known")
    elif key < (1, 28):
        yield Verdict(
            "warn" if context.has_nvidia_hardware and context.concerns_gpus else "info",
            f"Compose {version} refuses files that ask for GPUs",
            "compose",
            (f"docker-compose version {version}",),
            fix=("install the Compose plugin: https://docs.docker.com/compose/install/linux/",),
        )
    else:
        yield Verdict("pass", f"Compose {version} can ask for GPUs", "compose")
