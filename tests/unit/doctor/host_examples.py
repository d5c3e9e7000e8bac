"""A healthy host of which everything is known that has to do with Docker, services, limits and confinement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.doctor import Settings
from onecat.facts import (
    AppArmor,
    CdiSpecification,
    Clock,
    ContainerToolkit,
    DockerContainer,
    Facts,
    Filesystem,
    KernelEvent,
    Limit,
    OperatingSystem,
    SystemdUnit,
)
from onecat.facts.machine import KernelEventKind
from tests.unit.doctor.examples import DOCKER, GIB, HEALTHY, NVIDIA

NATIVE = Settings(runtime="native")
assert HEALTHY.operating_system is not None and HEALTHY.memory is not None and HEALTHY.cpu is not None
SYSTEM: OperatingSystem = replace(HEALTHY.operating_system, virtualization="none", kernel="5.15.0-126-generic")
SERVER = DockerContainer(
    name="onecat-qwen-0001",
    image="onecat/vllm-patched:0.27.1-sm70",
    state="running",
    restart_policy="no",
    shm_size=2 * GIB,
    ipc_mode="private",
    gpus=True,
    privileged=False,
    ports=(8000,),
)
TOOLKIT = ContainerToolkit(
    version="1.17.8",
    no_cgroups=False,
    mode="auto",
    specifications=(CdiSpecification("/var/run/cdi/nvidia.yaml", True, ("nvidia.com/gpu=all",), "580.95.05"),),
)
KNOWN: Facts = replace(
    HEALTHY,
    operating_system=SYSTEM,
    memory=replace(HEALTHY.memory, swap_total=8 * GIB, swap_free=8 * GIB),
    filesystems=(*HEALTHY.filesystems, Filesystem("model", "/srv/models", 900 * GIB, 500 * GIB, 50_000_000, "xfs")),
    limits=(Limit("nofile", 1024, 1048576), Limit("memlock", 8 * 1024**2, None), Limit("nproc", None, None)),
    clock=Clock(synchronized=True, offset_seconds=0.1),
    environment=(("PATH", "/usr/bin:/bin"),),
    apparmor=AppArmor(enabled=True, user_namespaces_restricted=False),
    kernel_events=(),
    docker=replace(
        DOCKER,
        client_version="28.5.1",
        compose_version="2.40.0",
        cgroup_driver="cgroupfs",
        cgroup_version="2",
        runtimes=("io.containerd.runc.v2", "nvidia", "runc"),
        default_runtime="runc",
        cdi_devices=("nvidia.com/gpu=all",),
        logging_driver="json-file",
        log_options=(("max-size", "50m"),),
        containers=(SERVER,),
        images=(),
    ),
    container_toolkit=TOOLKIT,
    nvidia=replace(
        NVIDIA,
        device_files=("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm", "/dev/nvidiactl"),
        dev_char_links=True,
    ),
    systemd_units=(),
)


def known(**changes: Any) -> Facts:
    """KNOWN with some facts changed."""
    return replace(KNOWN, **changes)


def system(**changes: Any) -> Facts:
    return known(operating_system=replace(SYSTEM, **changes))


def memory(**changes: Any) -> Facts:
    assert KNOWN.memory is not None
    return known(memory=replace(KNOWN.memory, **changes))


def docker(**changes: Any) -> Facts:
    assert KNOWN.docker is not None
    return known(docker=replace(KNOWN.docker, **changes))


def container(**changes: Any) -> Facts:
    """A host with one container of somebody else, otherwise like onecat's."""
    return docker(containers=(replace(SERVER, **{"name": "vllm", **changes}),))


def toolkit(**changes: Any) -> Facts:
    return known(container_toolkit=replace(TOOLKIT, **changes))


def environment(**changes: str) -> Facts:
    return known(environment=tuple(changes.items()))


def event(kind: KernelEventKind, text: str, **changes: Any) -> Facts:
    return known(kernel_events=(KernelEvent(kind, text, **changes),))


def unit(name: str = "vllm.service", **settings: str) -> Facts:
    """A host with one service that has these settings."""
    return known(systemd_units=(SystemdUnit(name, f"/etc/systemd/system/{name}", tuple(settings.items())),))
