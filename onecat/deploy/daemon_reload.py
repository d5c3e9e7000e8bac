"""`systemctl daemon-reload` without taking the GPUs from running containers.

systemd applies its own device rules anew at a reload. Where it manages the control groups of containers, it knows the
GPUs of those that NVIDIA's hook has given them only if /dev/char links to the device files; otherwise such containers
lose their GPUs (https://github.com/NVIDIA/nvidia-container-toolkit/issues/48,
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html#containers-losing-access-to-gpus-with-error-failed-to-initialize-nvml-unknown-error).
Deciding is done by pure functions over the documents of `docker info` and `docker inspect`; `reload` acts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onecat.deploy.container import HOME_LABEL, connect, translated
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Machine

# Documentation/admin-guide/devices.txt of Linux: major 195 is NVIDIA's; its minor 255 is /dev/nvidiactl.
_MAJOR, _CONTROL_MINOR = 195, 255
_GPU = re.compile(r"nvidia(\d+)")
# Opens each device file of the GPUs as the driver's library does: EPERM means that the control group forbids it.
_OPEN_GPUS = """
import glob, os, sys
paths = sorted(glob.glob("/dev/nvidia[0-9]*")) + glob.glob("/dev/nvidiactl")
for path in paths:
    try:
        os.close(os.open(path, os.O_RDWR))
    except PermissionError:
        sys.exit(path + " may not be opened any more")
"""


def links_missing(device_names: Iterable[str], character_links: Collection[str]) -> bool:
    """Whether a GPU's device file lacks its link.

    Parameters:
        device_names: of the files in /dev; character_links: of those in /dev/char, as `195:0`.
    """
    minors = []
    for name in device_names:
        found = _GPU.fullmatch(name)
        if found is not None:
            minors.append(int(found[1]))
        elif name == "nvidiactl":
            minors.append(_CONTROL_MINOR)
    return any(f"{_MAJOR}:{minor}" not in character_links for minor in minors)


def has_gpus(container: Mapping[str, Any]) -> bool:
    """Whether `docker inspect` says that a container has GPUs of NVIDIA's, in whatever way."""
    return _by_hook(container) or _by_cdi(container) or bool(_explicit(container, "PathInContainer"))


def loses_gpus(info: Mapping[str, Any], container: Mapping[str, Any], missing_links: bool) -> bool:
    """Whether a reload would take the GPUs from a container.

    Parameters:
        info: of `docker info`; container: of `docker inspect`; missing_links: see `links_missing`.
    """
    if info.get("CgroupDriver") != "systemd" or not missing_links:
        return False
    # What is in the container's own list of devices is in systemd's rules, too.
    return _by_hook(container) and "/dev/nvidiactl" not in _explicit(container, "PathOnHost")


def _by_hook(container: Mapping[str, Any]) -> bool:
    """By `--gpus`, or by the runtime `nvidia` in its usual mode: neither stands in the container's device list."""
    host = container.get("HostConfig") or {}
    for request in host.get("DeviceRequests") or ():
        wanted = {word for words in request.get("Capabilities") or () for word in words}
        if request.get("Driver") in ("", None, "nvidia") and "gpu" in wanted:
            return True
    visible = _visible_devices(container)
    by_runtime = str(host.get("Runtime", "")).startswith("nvidia")
    return by_runtime and visible not in (None, "", "none", "void") and not _names_cdi(visible)


def _by_cdi(container: Mapping[str, Any]) -> bool:
    host = container.get("HostConfig") or {}
    requests = host.get("DeviceRequests") or ()
    names = [name for each in requests if each.get("Driver") == "cdi" for name in each.get("DeviceIDs") or ()]
    return any(name.startswith("nvidia.com/") for name in names) or _names_cdi(_visible_devices(container))


def _names_cdi(visible: str | None) -> bool:
    return visible is not None and "nvidia.com/" in visible


def _visible_devices(container: Mapping[str, Any]) -> str | None:
    for variable in (container.get("Config") or {}).get("Env") or ():
        name, _, value = variable.partition("=")
        if name == "NVIDIA_VISIBLE_DEVICES":
            return str(value)
    return None


def _explicit(container: Mapping[str, Any], side: str) -> set[str]:
    """NVIDIA's device files that were handed over one by one, as they are called on one side."""
    devices = (container.get("HostConfig") or {}).get("Devices") or ()
    paths = {str(each.get(side, "")) for each in devices}
    return {path for path in paths if path == "/dev/nvidiactl" or _GPU.fullmatch(path.removeprefix("/dev/"))}


def refusal(names: Sequence[str], host: str) -> OnecatError:
    """What to tell where a reload would take the GPUs from these containers of a host."""
    return OnecatError(
        f"systemctl daemon-reload would take the GPUs from {_some(names)}",
        expected="links in /dev/char to the GPUs' device files, or GPUs by CDI, or Docker's cgroup driver cgroupfs",
        where=host,
        details=[
            "Docker's cgroup driver is systemd, NVIDIA's hook has given them the GPUs, and /dev/char/195:* is missing"
        ],
        next_steps=[
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all (udev rule: onecat doctor --fix-script -)",
            "or start such containers with --device nvidia.com/gpu=all (CDI) in place of --gpus",
            'or set "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json and restart Docker',
            "or onecat up --allow-daemon-reload, and start these containers anew afterwards",
        ],
        code=ExitCode.ROLLED_BACK,
    )


def loss(containers: Sequence[tuple[str, str]], host: str) -> OnecatError:
    """What to tell about containers, as (name, deployment), whose GPUs are gone after a reload."""
    return OnecatError(
        f"{_some([name for name, _ in containers])} lost the GPUs at systemctl daemon-reload",
        expected="every container that onecat looks after keeps its GPUs",
        where=host,
        next_steps=[f"onecat restart {deployment}" for deployment in dict.fromkeys(each for _, each in containers)],
        code=ExitCode.NEEDS_PERSON,
    )


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def containers_at_risk(machine: Machine, docker_host: str | None) -> list[str]:
    """The names of the running containers of a host that a reload of its systemd would take the GPUs from."""
    if not links_missing(machine.names("/dev"), machine.names("/dev/char")):
        return []
    address = machine.docker_host(docker_host)
    client = connect(address)
    with translated(address, None):
        info = client.info()
        if info.get("CgroupDriver") != "systemd":
            return []
        return sorted(
            each.name for each in client.containers.list() if loses_gpus(info, each.attrs, missing_links=True)
        )


def check(machine: Machine, docker_host: str | None) -> None:
    """Raises OnecatError when a reload of a host's systemd would take the GPUs from a running container."""
    names = containers_at_risk(machine, docker_host)
    if names:
        raise refusal(names, machine.name)


def check_gpus(machine: Machine, docker_host: str | None) -> None:
    """Raises OnecatError (NEEDS_PERSON) when a running container of onecat's may not open its GPUs any more."""
    if not any(_GPU.fullmatch(name) for name in machine.names("/dev")):
        return
    address = machine.docker_host(docker_host)
    client = connect(address)
    with translated(address, None):
        lost = [
            (each.name, str(each.labels.get("io.onecat.deployment", each.name)))
            for each in client.containers.list(filters={"label": HOME_LABEL})
            if has_gpus(each.attrs) and each.exec_run(["python3", "-I", "-c", _OPEN_GPUS]).exit_code == 1
        ]
    if lost:
        raise loss(sorted(lost), machine.name)


def reload(machine: Machine, docker_host: str | None, allowed: bool) -> None:
    """`systemctl daemon-reload` on a host.

    Parameters:
        machine: with root's rights. allowed: whether containers may lose their GPUs by it.

    Raises OnecatError: a refusal before anything is done, unless allowed; NEEDS_PERSON when a container that onecat
    looks after has lost its GPUs.
    """
    if not allowed:
        check(machine, docker_host)
    done = machine.run(["systemctl", "daemon-reload"])
    if done.exit_code != 0:
        raise OnecatError(
            "systemd could not be reloaded",
            where=machine.name,
            details=done.stderr.decode("utf-8", "replace").strip().splitlines()[-5:],
            next_steps=["sudo systemctl daemon-reload", "systemctl status"],
            code=ExitCode.ROLLED_BACK,
        )
    check_gpus(machine, docker_host)
