"""Merges parts of a document in the form of onecat.facts, and makes facts of them. Pure.

In: parts from the agent and from importers, each with what it knows. Out: one document, or Facts.

What an earlier part says stays; a later part fills what is absent (missing, None, empty text). Lists are joined:
records of the same thing become one, others follow. What makes two records the same thing is in `IDENTITIES`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from onecat.facts import SCHEMA, Facts, from_json, to_json

Record = Mapping[str, Any]


def _fields(*names: str) -> Callable[[Any], Any]:
    return lambda record: tuple(record.get(name) for name in names) if isinstance(record, Mapping) else _spelled(record)


def _first(pair: Any) -> Any:
    return str(pair[0]) if isinstance(pair, Sequence) and len(pair) else _spelled(pair)


def _event(record: Any) -> Any:
    """Kind, number and place of an event, and whether it is the kind's harmless form."""
    if not isinstance(record, Mapping):
        return _spelled(record)
    text = str(record.get("text")).lower()
    return record.get("kind"), record.get("xid"), record.get("address"), "severity=correct" in text


IDENTITIES: Mapping[str, Callable[[Any], Any]] = {
    "filesystems": _fields("purpose", "path"),
    "limits": _fields("name"),
    "environment": _first,
    "selinux.booleans": _first,
    "selinux.device_labels": _first,
    "kernel_events": _event,
    "docker.log_options": _first,
    "docker.containers": _fields("name"),
    "docker.images": _fields("id"),
    "docker.images.labels": _first,
    "container_toolkit.specifications": _fields("path"),
    "nvidia.toolkits": _first,
    "nvidia.gpus.nvlinks": _fields("link"),
    "nvidia.pairs": _fields("first", "second"),
    "nvidia.loads": _fields("gpu"),
    "nvidia.pci_devices": _fields("address"),
    "nvidia.pci_devices.path": _fields("address"),
    "ascend.npus": _fields("index"),
    "listeners": _fields("address", "port"),
    "interfaces": _fields("name"),
    "systemd_units": _fields("name"),
    "engines": _fields("where"),
    "engines.packages": _first,
    "server_logs": _fields("name"),
    "tools.paths": _first,
    "tools.versions": _first,
    "notes": _fields("source"),
}
"""What tells that two members of a list are the same thing; members of other lists are when they are equal."""

_WHOLE = frozenset({"nvidia.gpus.processes", "nvidia.gpus.process_ids", "server_logs.lines", "systemd_units.settings"})
"""Lists that belong together as they are at one moment: the earlier one stays as it is."""

_CLOSED = frozenset({"nvidia.pci_devices.path"})
"""Lists whose members are known once there are any: later parts only add to those."""


def merge_parts(parts: Iterable[Record]) -> dict[str, Any]:
    """One document of all parts; see the module for the rules.

    GPUs are the same by PCI address, else by UUID, else by index, as far as both tell it. Equal kernel events of one
    part add up; over parts the larger number stands, because dmesg and the journal hold the same lines. The answer is
    complete: GPUs without an index get the free ones in the order of their addresses (NVML's order), and records that
    lack what a fact needs are left out.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        merged = _merge_records("", merged, part)
    return _complete(merged)


def facts_from_parts(host: str, parts: Iterable[tuple[str, Record]]) -> Facts:
    """The facts of a host known from captures. parts: what gave them (an importer's name) and what it read."""
    named = list(parts)
    sources = list(dict.fromkeys(name for name, _ in named))
    identity = {"schema": SCHEMA, "host": host, "sources": sources}
    return from_json(merge_parts([identity, *(part for _, part in named)]))


def facts_from_document(document: Mapping[str, Any]) -> Facts:
    """The facts in a document of the agent, which may carry `captures`: output of programs that importers read.

    What the agent says itself comes before what its captures tell. Captures of no known form are passed over.
    Raises ValueError when the document, without its captures, is not of the form of onecat.facts.
    """
    facts = from_json({key: value for key, value in document.items() if key != "captures"})
    captures = document.get("captures")
    if not isinstance(captures, (list, tuple)) or not captures:
        return facts
    from onecat.probe.importers import Capture, parse_capture

    parts: list[tuple[str, Record]] = []
    for each in captures:
        if isinstance(each, Mapping) and isinstance(each.get("text"), str):
            parts += parse_capture(Capture(str(each.get("name")), each["text"]))
    sources = list(dict.fromkeys([*facts.sources, *(name for name, _ in parts)]))
    return from_json(merge_parts([{**to_json(facts), "sources": sources}, *(part for _, part in parts)]))


def _merge_records(where: str, first: Record, second: Record) -> dict[str, Any]:
    merged = dict(first)
    for key, value in second.items():
        path = f"{where}.{key}" if where else key
        merged[key] = _merge_values(path, merged.get(key), value)
    return merged


def _merge_values(where: str, first: Any, second: Any) -> Any:
    if isinstance(second, Mapping) and (first is None or isinstance(first, Mapping)):
        return _merge_records(where, first or {}, second)
    if isinstance(second, (list, tuple)) and (first is None or isinstance(first, (list, tuple))):
        return _join(where, first, second)
    if first is None or first == "" or (where == "nvidia.gpus.name" and _is_stub(first) and second):
        return second
    return first


def _is_stub(name: Any) -> bool:
    """Whether a GPU's name is none, or one that nvidia-smi's table has cut."""
    return name == "unknown" or str(name).endswith("...")


def _join(where: str, first: Sequence[Any] | None, second: Sequence[Any]) -> list[Any]:
    if first is not None and where in _WHOLE:
        return list(first)
    if where == "nvidia.gpus":
        return _join_gpus([*(first or ()), *second])
    identity = IDENTITIES.get(where, _spelled)
    if where == "kernel_events":
        return _join_events(first or (), second, identity)
    members: dict[Any, Any] = {}
    for member in first or ():
        _add(where, members, identity(member), member)
    closed = bool(members) and where in _CLOSED
    for member in second:
        key = identity(member)
        if not closed or key in members:
            _add(where, members, key, member)
    return list(members.values())


def _add(where: str, members: dict[Any, Any], key: Any, member: Any) -> None:
    if not isinstance(member, Mapping):
        members.setdefault(key, member)
        return
    members[key] = _merge_records(where, members.get(key, {}), member)


def _join_events(first: Sequence[Any], second: Sequence[Any], identity: Callable[[Any], Any]) -> list[Any]:
    """Equal events add up within a part; of two parts, which may have read one log, the larger count stands."""
    joined: dict[Any, Any] = {}
    for part in (first, second):
        counted: dict[Any, Any] = {}
        for event in part:
            before = counted.get(identity(event))
            counted[identity(event)] = _same_event(before, event, sum) if before else event
        for key, event in counted.items():
            joined[key] = _same_event(joined[key], event, max) if key in joined else event
    return list(joined.values())


def _same_event(before: Mapping[str, Any], event: Mapping[str, Any], count: Callable[[list[int]], int]) -> Any:
    merged = _merge_records("kernel_events", before, event)
    merged["count"] = count([before.get("count", 1), event.get("count", 1)])
    times = [each["seconds"] for each in (before, event) if each.get("seconds") is not None]
    merged["seconds"] = max(times, default=None)
    return merged


_GPU_KEYS = ("pci_address", "uuid", "index")


def _join_gpus(members: Sequence[Any]) -> list[Any]:
    joined: list[dict[str, Any]] = []
    places: dict[tuple[str, Any], int] = {}
    for member in members:
        if not isinstance(member, Mapping):
            continue
        place = next((at for key in _GPU_KEYS if (at := _place(joined, places, key, member)) is not None), len(joined))
        if place == len(joined):
            joined.append({})
        joined[place] = _merge_records("nvidia.gpus", joined[place], member)
        for key in _GPU_KEYS:
            if joined[place].get(key) is not None:
                places.setdefault((key, joined[place][key]), place)
    return list(joined)


def _place(joined: Sequence[Record], places: Mapping[tuple[str, Any], int], key: str, member: Record) -> int | None:
    """Where the GPU with the same value of this key is, unless a better key tells that it is another one."""
    place = places.get((key, member.get(key))) if member.get(key) is not None else None
    if place is None:
        return None
    better = _GPU_KEYS[: _GPU_KEYS.index(key)]
    differs = any(
        member.get(each) is not None and joined[place].get(each) is not None and member[each] != joined[place][each]
        for each in better
    )
    return None if differs else place


def _spelled(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else json.dumps(value, sort_keys=True)


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    nvidia = document.get("nvidia")
    if isinstance(nvidia, Mapping) and nvidia.get("gpus"):
        document = {**document, "nvidia": {**nvidia, "gpus": _numbered(nvidia["gpus"])}}
    if "schema" in document and "host" in document:
        return typing.cast("dict[str, Any]", _completed(Facts, document))
    return {key: value for key, value in _completed_fields(Facts, document).items() if value is not None}


def _is_row(gpu: Record) -> bool:
    return not any(gpu.get(key) for key in ("pci_address", "uuid", "name"))


def _without_rows(gpus: Sequence[Record]) -> Sequence[Record]:
    """Give what a topology's rows say, which have nothing but a number, to the GPUs that have none.

    NVML numbers GPUs by their addresses. Where not as many are without a number as there are rows, which is which is
    not known, and the rows are left out.
    """
    waiting = sorted((gpu for gpu in gpus if gpu.get("index") is None), key=_address)
    rows = [gpu for gpu in gpus if gpu.get("index") is not None and _is_row(gpu)]
    if not waiting or not rows:
        return gpus
    others = [gpu for gpu in gpus if gpu.get("index") is not None and not _is_row(gpu)]
    if len(rows) != len(waiting):
        return [*others, *waiting]
    rows.sort(key=lambda gpu: gpu["index"])
    return [*others, *(_merge_records("nvidia.gpus", *both) for both in zip(waiting, rows, strict=True))]


def _numbered(gpus: Sequence[Record]) -> list[dict[str, Any]]:
    """GPUs by index; those without get the free ones in the order of their addresses, as NVML numbers them."""
    gpus = _without_rows(gpus)
    used = {gpu["index"] for gpu in gpus if gpu.get("index") is not None}
    free = (index for index in itertools.count() if index not in used)
    waiting = sorted((gpu for gpu in gpus if gpu.get("index") is None), key=_address)
    numbered = [gpu for gpu in gpus if gpu.get("index") is not None]
    numbered += [{**gpu, "index": index} for gpu, index in zip(waiting, free, strict=False)]
    return sorted(({**gpu, "name": gpu.get("name") or "unknown"} for gpu in numbered), key=lambda gpu: gpu["index"])


def _address(gpu: Record) -> str:
    return str(gpu.get("pci_address"))


@cache
def _record_fields(record: type[Any]) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether it is needed, of each field."""
    hints = typing.get_type_hints(record)
    return tuple(
        (
            field.name,
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(record)
    )


def _completed(kind: Any, value: Any) -> Any:
    """The value without records that lack what they need; None when it is such a record itself."""
    if value is None:
        return None
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _completed(next(each for each in arguments if each is not type(None)), value)
    if origin is tuple and arguments[-1] is Ellipsis and dataclasses.is_dataclass(arguments[0]):
        members = [_completed(arguments[0], each) for each in value]
        return [each for each in members if each is not None]
    if not dataclasses.is_dataclass(kind) or not isinstance(value, Mapping):
        return value
    completed = _completed_fields(kind, value)
    fields = _record_fields(typing.cast("Any", kind))
    return completed if all(name in completed for name, _, is_needed in fields if is_needed) else None


def _completed_fields(kind: Any, value: Record) -> dict[str, Any]:
    """A record's known fields; one that is a list by default and is absent is left to its default."""
    completed = dict(value)
    for name, of, _ in _record_fields(kind):
        if name in completed:
            completed[name] = _completed(of, completed[name])
            if completed[name] is None and not _may_be_none(of):
                del completed[name]
    return completed


def _may_be_none(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)
