"""The machine itself: system, processor, memory, disks, limits, confinement, kernel log, services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class OperatingSystem:
    """id, id_like, version_id: as in os-release. kernel_command_line: /proc/cmdline.

    virtualization: the word of systemd-detect-virt (none, kvm, vmware, wsl, ...), None when not known.
    """

    id: str | None = None
    id_like: tuple[str, ...] = ()
    version_id: str | None = None
    pretty_name: str | None = None
    kernel: str | None = None
    kernel_command_line: str | None = None
    architecture: str | None = None
    libc: str | None = None
    container: bool | None = None
    virtualization: str | None = None
    secure_boot: bool | None = None
    init: str | None = None
    python: str | None = None


@dataclass(frozen=True)
class Cpu:
    """The machine's processors.

    logical_cores: all that /proc/cpuinfo lists. usable_cores: on which the probe may run (affinity, cpusets).
    flags: instruction sets as /proc/cpuinfo names them (avx2, or Features of aarch64).
    """

    model: str | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    sockets: int | None = None
    numa_nodes: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """Bytes, as /proc/meminfo has them. cgroup_limit: what the control group of the probe may use; None: no limit."""

    total: int | None = None
    available: int | None = None
    swap_total: int | None = None
    swap_free: int | None = None
    cgroup_limit: int | None = None


@dataclass(frozen=True)
class Filesystem:
    """Space below one path that matters (`purpose`: data, docker, tmp, shm, root, model, ...)."""

    purpose: str
    path: str
    total: int
    available: int
    inodes_available: int | None = None
    kind: str | None = None


@dataclass(frozen=True)
class Limit:
    """A resource limit of the user that probes (name as in limits.conf: nofile, memlock, nproc); None is unlimited."""

    name: str
    soft: int | None
    hard: int | None


@dataclass(frozen=True)
class Clock:
    """synchronized: whether the system says that it keeps time by a server. offset_seconds: host minus operator."""

    synchronized: bool | None = None
    offset_seconds: float | None = None


@dataclass(frozen=True)
class SeLinux:
    """booleans: those about devices and containers. device_labels: path and label of the GPU device files."""

    mode: Literal["enforcing", "permissive", "disabled"]
    policy: str | None = None
    booleans: tuple[tuple[str, bool], ...] = ()
    device_labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class AppArmor:
    """user_namespaces_restricted: the kernel denies them to unconfined programs (Ubuntu 24.04)."""

    enabled: bool
    user_namespaces_restricted: bool | None = None


KernelEventKind = Literal[
    "xid",
    "gpu-fell-off",
    "gpu-ignored",
    "gpu-init-failed",
    "bar-unassigned",
    "version-mismatch",
    "gsp-timeout",
    "pcie-error",
    "iommu-fault",
    "selinux-denial",
    "module-refused",
    "out-of-memory-kill",
    "illegal-instruction",
    "hung-task",
    "other",
]


@dataclass(frozen=True)
class KernelEvent:
    """One thing the kernel log tells, however often it is repeated.

    text: the first line of it; of Xid 154, which tells what is asked for now, the last.
    address: of the PCI function, as 0000:3b:00.0. xid: NVIDIA's error number. process: the program named in it.
    count: how many such lines there are. seconds: since boot, of the last one.
    """

    kind: KernelEventKind
    text: str
    address: str | None = None
    xid: int | None = None
    process: str | None = None
    count: int = 1
    seconds: float | None = None


@dataclass(frozen=True)
class Listener:
    """A TCP port in use. process: the program behind it, where the user may know."""

    address: str
    port: int
    process: str | None = None


@dataclass(frozen=True)
class Interface:
    """A network interface. up: enabled and with a link. addresses: with the network's length, as 10.0.0.5/24.

    speed_mbps: of the link, in Mbit/s; None where the driver tells none, as for virtual ones.
    """

    name: str
    up: bool = False
    loopback: bool = False
    addresses: tuple[str, ...] = ()
    speed_mbps: int | None = None


@dataclass(frozen=True)
class SystemdUnit:
    """A service that has to do with serving. settings: pairs as in the file (ExecStart, Restart, KillMode, ...)."""

    name: str
    path: str | None = None
    settings: tuple[tuple[str, str], ...] = ()

    def values(self, key: str) -> tuple[str, ...]:
        """Every value that a setting has."""
        return tuple(value for name, value in self.settings if name == key)


@dataclass(frozen=True)
class Tools:
    """Programs that matter, path by name; absent ones are left out. versions: by name, as the program states it.

    libraries: of the shared libraries that engines need, those that the loader finds; None when it was not asked.
    """

    paths: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] | None = None

    def path(self, name: str) -> str | None:
        """The absolute path of a program, or None."""
        return dict(self.paths).get(name)

    def version(self, name: str) -> str | None:
        """The version of a program, or None."""
        return dict(self.versions).get(name)
