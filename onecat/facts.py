"""The facts: what was observed on one host, as one typed, frozen, versioned record that round-trips through JSON.

Every field may be absent (None or empty) because its source was missing, forbidden, slow or broken; then a `Note`
says why. Checks must turn an absent fact into `skip`, never into `pass`. Sizes are bytes unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union

SCHEMA = "onecat.facts/1"


@dataclass(frozen=True)
class Note:
    """Why a fact source gave nothing: `source` names it (os, nvml, docker, ...)."""

    source: str
    kind: Literal["absent", "permission", "timeout", "error"]
    text: str


@dataclass(frozen=True)
class OperatingSystem:
    id: str | None = None
    version_id: str | None = None
    pretty_name: str | None = None
    kernel: str | None = None
    architecture: str | None = None
    libc: str | None = None
    container: bool | None = None
    init: str | None = None
    python: str | None = None


@dataclass(frozen=True)
class Cpu:
    model: str | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    total: int | None = None
    available: int | None = None
    swap_total: int | None = None
    cgroup_limit: int | None = None


@dataclass(frozen=True)
class Filesystem:
    """Space below one path that matters (`purpose`: data, docker, tmp, shm, ...)."""

    purpose: str
    path: str
    total: int
    available: int
    inodes_available: int | None = None
    kind: str | None = None


@dataclass(frozen=True)
class SeLinux:
    mode: Literal["enforcing", "permissive", "disabled"]


@dataclass(frozen=True)
class Docker:
    """The Docker daemon as seen from the user that probes.

    state: `absent` no client and no socket; `unreachable` nothing answers; `forbidden` the socket refuses this user.
    socket: the address that was asked, as unix:///var/run/docker.sock.
    """

    state: Literal["absent", "unreachable", "forbidden", "reachable"]
    socket: str | None = None
    error: str | None = None
    server_version: str | None = None
    api_version: str | None = None
    storage_driver: str | None = None
    root_directory: str | None = None
    cgroup_driver: str | None = None
    cgroup_version: str | None = None
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    security_options: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class PciDevice:
    """An NVIDIA PCI function of display class in sysfs, seen without a driver."""

    address: str
    vendor_id: str
    device_id: str
    driver: str | None = None
    link_width_current: int | None = None
    link_width_max: int | None = None
    link_speed_current: str | None = None
    link_speed_max: str | None = None
    upstream_link_width_max: int | None = None
    numa_node: int | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML reports it. `error` is set when the driver lists it and it does not answer."""

    index: int
    name: str
    error: str | None = None
    uuid: str | None = None
    pci_address: str | None = None
    compute_capability: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    performance_state: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    mig_enabled: bool | None = None
    ecc_enabled: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    retired_pages: int | None = None
    retired_pages_pending: bool | None = None
    remapped_rows_failure: bool | None = None
    remapped_rows_pending: bool | None = None
    pcie_generation_current: int | None = None
    pcie_generation_max: int | None = None
    pcie_width_current: int | None = None
    pcie_width_max: int | None = None
    pcie_replay_counter: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    event_reasons: int | None = None
    process_ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Nvidia:
    """NVIDIA driver and GPUs. `nvml_error` is set when the library is there and refuses to work.

    library_version: of the user-space library by its file name, known also when NVML refuses to work.
    """

    driver_version: str | None = None
    library_version: str | None = None
    kernel_module_version: str | None = None
    kernel_module_open: bool | None = None
    cuda_driver_version: str | None = None
    nouveau_loaded: bool | None = None
    library_found: bool | None = None
    nvml_error: str | None = None
    gpus: tuple[Gpu, ...] = ()
    pci_devices: tuple[PciDevice, ...] = ()


@dataclass(frozen=True)
class Listener:
    """A TCP port in use."""

    address: str
    port: int


@dataclass(frozen=True)
class Tools:
    """Programs that matter, path by name; absent ones are left out.

    libraries: of the shared libraries that engines need, those that the loader finds; None when it was not asked.
    """

    paths: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] | None = None
    nginx_version: str | None = None

    def path(self, name: str) -> str | None:
        """The absolute path of a program, or None."""
        return dict(self.paths).get(name)


@dataclass(frozen=True)
class Facts:
    """All that is known of one host."""

    host: str
    schema: str = SCHEMA
    collected_at: str | None = None
    user: str | None = None
    is_root: bool | None = None
    operating_system: OperatingSystem | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    filesystems: tuple[Filesystem, ...] = ()
    selinux: SeLinux | None = None
    docker: Docker | None = None
    nvidia: Nvidia | None = None
    listeners: tuple[Listener, ...] | None = None
    tools: Tools | None = None
    notes: tuple[Note, ...] = ()

    def note(self, source: str) -> Note | None:
        """The note about a fact source, or None when it worked."""
        return next((note for note in self.notes if note.source == source), None)

    def filesystem(self, purpose: str) -> Filesystem | None:
        """The filesystem with this purpose, or None."""
        return next((each for each in self.filesystems if each.purpose == purpose), None)


def to_json(facts: Facts) -> dict[str, Any]:
    """The facts as a JSON document (tuples become lists)."""
    return dataclasses.asdict(facts)


def from_json(document: Mapping[str, Any]) -> Facts:
    """Read back what `to_json` wrote; unknown keys of a newer onecat are ignored.

    Raises ValueError with the path of the offending value when the document is not of this form.
    """
    schema = document.get("schema")
    if schema != SCHEMA:
        raise ValueError(f"schema is {schema!r}, expected {SCHEMA!r}")
    return _read(Facts, document, "facts")


_Record = TypeVar("_Record")


@cache
def _field_types(record: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


def _read(record: type[_Record], document: Any, where: str) -> _Record:
    if not isinstance(document, Mapping):
        raise ValueError(f"{where}: expected an object, found {document!r}")
    known = _field_types(typing.cast(Any, record))
    needed = [field.name for field in dataclasses.fields(typing.cast(Any, record)) if _is_needed(field)]
    missing = [name for name in needed if name not in document]
    if missing:
        raise ValueError(f"{where}: {', '.join(map(repr, missing))} is missing")
    values = {key: _value(known[key], value, f"{where}.{key}") for key, value in document.items() if key in known}
    return record(**values)


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _value(next(each for each in arguments if each is not type(None)), value, where)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{where}: expected one of {', '.join(map(repr, arguments))}, found {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where}: expected a list, found {value!r}")
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) != len(value):
            raise ValueError(f"{where}: expected {len(kinds)} values, found {len(value)}")
        return tuple(
            _value(each, item, f"{where}[{index}]") for index, (each, item) in enumerate(zip(kinds, value, strict=True))
        )
    if dataclasses.is_dataclass(kind):
        return _read(typing.cast(type[Any], kind), value, where)
    if kind is float and type(value) in (int, float):
        # JSON has no NaN and no infinity, but Python reads them, and huge integers; nothing is measured in those.
        if not abs(value) <= sys.float_info.max:
            raise ValueError(f"{where}: expected a finite number, found {value!r}")
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}: expected {kind.__name__}, found {value!r}")
    return value
