"""Docker and what confines its containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.findings import Status
from onecat.doctor.registry import Verdict, check

INSTALL_GUIDE = "https://docs.docker.com/engine/install/"
POST_INSTALL = "https://docs.docker.com/engine/install/linux-postinstall/"


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
    evidence = (f"{docker.socket}: {docker.error}",)
    if docker.state == "reachable" and _is_too_old(docker.api_version):
        yield Verdict(
            "warn",
            f"Docker {docker.server_version} is too old for onecat's containers: API {docker.api_version}",
            evidence=(f"{docker.socket}, API {docker.api_version}; needed: Docker 20.10 (API 1.41) or newer",),
            fix=(f"update Docker: {INSTALL_GUIDE}",),
        )
    elif docker.state == "reachable":
        yield Verdict(
            "pass",
            f"Docker {docker.server_version} answers",
            evidence=(f"{docker.socket}, API {docker.api_version}, storage {docker.storage_driver}",),
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
            fix=("sudo systemctl enable --now docker", "or, for a daemon elsewhere: export DOCKER_HOST=unix://PATH"),
        )


def _is_too_old(api_version: str | None) -> bool:
    """Whether the daemon lacks one-shot statistics (API 1.41), from which `up` sees that a server is at work."""
    numbers = re.fullmatch(r"(\d+)\.(\d+)", api_version or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < (1, 41)


def _install(context: Context) -> tuple[str, ...]:
    system = context.facts.operating_system
    if system is not None and system.id in ("debian", "ubuntu"):
        return ("sudo apt-get install docker.io",)
    return (f"install Docker: {INSTALL_GUIDE}",)


@check(
    "selinux.mode",
    title="SELinux does not stand between containers and the GPUs",
    why="Where the daemon confines containers, SELinux may deny them the GPU device files and mounted models.",
    fix=(
        "nothing for onecat's own containers: `onecat up` makes each with --security-opt label=disable",
        "for others: sudo setsebool -P container_use_devices 1",
        "never switch SELinux off for this",
    ),
    source=(
        "https://github.com/containers/container-selinux",
        "https://docs.docker.com/engine/containers/run/#security-configuration",
    ),
    requires=(requirements.container_possible,),
)
def selinux_mode(context: Context) -> Iterator[Verdict]:
    """The mode of SELinux and whether the Docker daemon uses it."""
    selinux, docker = context.facts.selinux, context.facts.docker
    if selinux is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('selinux', 'the mode is not known')}")
        return
    evidence = [f"SELinux: {selinux.mode}"]
    if selinux.mode != "enforcing":
        yield Verdict("pass", f"SELinux is {selinux.mode}", evidence=tuple(evidence))
    elif docker is None or docker.state != "reachable":
        yield Verdict("skip", "Not checked: SELinux is enforcing and what the daemon does is not known")
    elif any("selinux" in option for option in docker.security_options):
        evidence.append(f"docker info: {', '.join(docker.security_options)}")
        yield Verdict(
            "info",
            "SELinux confines containers on this host, but for those of onecat",
            evidence=tuple(evidence),
            fix=(
                "nothing for onecat's own containers: `onecat up` makes each with --security-opt label=disable",
                "if another container is denied a GPU: sudo setsebool -P container_use_devices 1",
            ),
        )
    else:
        evidence.append("the daemon runs without --selinux-enabled")
        yield Verdict("pass", "SELinux is enforcing and does not confine containers", evidence=tuple(evidence))
