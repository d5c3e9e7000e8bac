"""The whole record, and its form as JSON."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union

from onecat.facts.ascend import Ascend
from onecat.facts.containers import ContainerToolkit, Docker
from onecat.facts.engine import EngineEnvironment, ServerLog
from onecat.facts.machine import (
    AppArmor,
    Clock,
    Cpu,
    Filesystem,
    Interface,
    KernelEvent,
    Limit,
    Listener,
    Memory,
    OperatingSystem,
    SeLinux,
    SystemdUnit,
    Tools,
)
from onecat.facts.nvidia import Nvidia
from onecat.facts.pci import PciBus

SCHEMA = "onecat.facts/1"


@dataclass(frozen=True)
class Note:
    """Why a fact source gave nothing: `source` names it (os, nvml, docker, ...)."""

    source: str
    kind: Literal["absent", "permission", "timeout", "error"]
    text: str


@dataclass(frozen=True)
class Facts:
    """All that is known of one host.

    sources: what gave the facts: names of the probe's sources or of importers of captures.
    environment: the variables that change what CUDA, NCCL, Docker and the engines do, without secrets; None: not asked.
    """

    host: str
    schema: str = SCHEMA
    collected_at: str | None = None
    user: str | None = None
    is_root: bool | None = None
    sources: tuple[str, ...] = ()
    operating_system: OperatingSystem | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    filesystems: tuple[Filesystem, ...] = ()
    limits: tuple[Limit, ...] = ()
    clock: Clock | None = None
    environment: tuple[tuple[str, str], ...] | None = None
    selinux: SeLinux | None = None
    apparmor: AppArmor | None = None
    kernel_events: tuple[KernelEvent, ...] | None = None
    docker: Docker | None = None
    container_toolkit: ContainerToolkit | None = None
    nvidia: Nvidia | None = None
    pci: PciBus | None = None
    ascend: Ascend | None = None
    listeners: tuple[Listener, ...] | None = None
    interfaces: tuple[Interface, ...] | None = None
    systemd_units: tuple[SystemdUnit, ...] | None = None
    engines: tuple[EngineEnvironment, ...] = ()
    server_logs: tuple[ServerLog, ...] = ()
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


def record_from_json(record: type[_Record], document: Any, where: str) -> _Record:
    """A frozen record of any kind from the JSON object that dataclasses.asdict gave; unknown keys are ignored.

    Parameters:
        record: its class; its fields are numbers, texts, literals, tuples and further records.
        where: what to call the document in errors.

    Raises ValueError with the path of the offending value when the document is not of this form.
    """
    return _read(record, document, where)


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


@cache
def _form(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(kind), typing.get_args(kind)


def _value(kind: Any, value: Any, where: str) -> Any:
    if type(value) is kind and kind is not float:
        return value
    origin, arguments = _form(kind)
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
