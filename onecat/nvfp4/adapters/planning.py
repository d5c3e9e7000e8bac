"""What a repack writes: which tensors are made anew, which stay byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onecat.nvfp4.adapters.changes import Changes
from onecat.nvfp4.adapters.fusing import Group, Member, group_of
from onecat.nvfp4.adapters.making import Maker
from onecat.nvfp4.adapters.merging import Change
from onecat.nvfp4.adapters.storage import StoredModule
from onecat.nvfp4.rewriting import Made, Rewrite, Shard, SourceFiles, Step

REVISION = 1
"""Of what is written for the same base and adapter: a run of another revision does not go on with this one's work."""


@dataclass(frozen=True)
class Touched:
    """A module or tensor that changes. kind: `nvfp4`, `fp8-block`, or the type of a plain tensor; rank 0 for none."""

    name: str
    kind: str
    shape: tuple[int, ...]
    rank: int
    scaling: float


@dataclass(frozen=True)
class Layout:
    """How the new shards come about.

    copied: files without a change. untouched: number of tensors that stay. neighbours: modules that the adapter leaves
    alone and whose scales belong to a group that may be scaled anew.
    """

    shards: tuple[Shard, ...]
    copied: tuple[str, ...]
    touched: tuple[Touched, ...]
    untouched: int
    neighbours: tuple[str, ...]


def lay_out(changes: Changes, source: SourceFiles, neighbours: Mapping[str, StoredModule], maker: Maker) -> Layout:
    """The shards of the new checkpoint; those without a change are copied whole.

    neighbours: NVFP4 modules that engines join with changed ones and that do not change, by name.
    """
    groups = _groups(changes, neighbours, maker)
    steps: dict[str, Step] = {}
    for stored, change in changes.modules:
        for wanted in _by_file(stored, source):
            step = Step(
                stored.stem,
                tuple(_made(name, source) for name in wanted),
                stored.tensors,
                maker.module(stored, change, groups.get(stored.stem), wanted),
            )
            steps.update(dict.fromkeys(wanted, step))
    for tensor in changes.tensors:
        step = Step(tensor.tensor, (_made(tensor.tensor, source),), (tensor.tensor,), maker.tensor(tensor))
        steps[tensor.tensor] = step
    for stem, stored in neighbours.items():
        for name in stored.tensors[1:]:
            steps[name] = Step(stem, (_made(name, source),), (name,), maker.neighbour(stored, groups[stem], name))
    touched_files = {source.tensors[name].file for name in steps}
    shards = tuple(_shard(file, source, steps) for file in source.headers if file in touched_files)
    changed = {each.stem for each, _ in changes.modules} | {each.tensor for each in changes.tensors}
    made = {name for name, step in steps.items() if step.module in changed}
    return Layout(
        shards,
        tuple(file for file in source.headers if file not in touched_files),
        _touched(changes, source),
        len(source.tensors) - len(made),
        tuple(neighbours),
    )


def rewrite_of(
    layout: Layout, source: SourceFiles, adapter: SourceFiles, target: Path, documents: Mapping[str, str],
    copied: tuple[str, ...], settings: Mapping[str, object], *, restart: bool, replace: bool,
) -> Rewrite:  # fmt: skip
    """The plan for the executor. settings: adapter_config.json and the options, which say what is being made."""
    headers = {
        name: [tensor.dtype, *tensor.shape, tensor.begin, tensor.bytes] for name, tensor in adapter.tensors.items()
    }
    identity = {
        "command": "repack",
        "revision": REVISION,
        "settings": dict(settings),
        "adapter": {"tensors": headers, "sha256": _digest(adapter)},
    }
    return Rewrite(
        source.directory, target, layout.shards, documents, (*layout.copied, *copied), identity, restart, replace
    )  # fmt: skip


def _digest(adapter: SourceFiles) -> str:
    digest = hashlib.sha256()
    for name in adapter:
        digest.update(adapter.raw(name).data)
    return digest.hexdigest()


def _groups(changes: Changes, neighbours: Mapping[str, StoredModule], maker: Maker) -> dict[str, Group]:
    members: dict[tuple[str, ...], list[Member]] = {}
    changed: list[tuple[StoredModule, Change | None]] = [
        *changes.modules,
        *((each, None) for each in neighbours.values()),
    ]
    for stored, change in changed:
        if stored.kind == "nvfp4":
            members.setdefault(group_of(stored.stem), []).append(Member(stored, change))
    made = (Group(each, maker.adapter, maker.codec, maker.search) for each in members.values())
    return {member.stored.stem: group for group in made for member in group.members}


def _by_file(stored: StoredModule, source: SourceFiles) -> list[tuple[str, ...]]:
    """A module's tensors by the file that they are in: a publisher may have cut between them."""
    files: dict[str, list[str]] = {}
    for name in stored.tensors:
        files.setdefault(source.tensors[name].file, []).append(name)
    return [tuple(names) for names in files.values()]


def _made(name: str, source: SourceFiles) -> Made:
    tensor = source.tensors[name]
    return Made(name, tensor.dtype, tensor.shape)


def _shard(file: str, source: SourceFiles, steps: Mapping[str, Step]) -> Shard:
    """The file's tensors in their order, those that are made together where the first of them stands."""
    ordered: dict[int, Step] = {}
    for name, tensor in source.tensors.items():
        if tensor.file == file:
            step = steps.get(name) or Step(name, (_made(name, source),), (name,))
            ordered.setdefault(id(step), step)
    return Shard(file, tuple(ordered.values()), dict(source.headers[file].metadata))


def _touched(changes: Changes, source: SourceFiles) -> tuple[Touched, ...]:
    modules = [
        Touched(
            stored.stem,
            source.tensors[stored.data].dtype if stored.kind == "plain" else stored.kind,
            stored.shape,
            change.rank,
            change.scaling,
        )
        for stored, change in changes.modules
    ]
    tensors = [
        Touched(each.tensor, source.tensors[each.tensor].dtype, source.tensors[each.tensor].shape, 0, each.scaling)
        for each in changes.tensors
    ]
    order = {name: position for position, name in enumerate(source)}
    first = {stored.stem: order[stored.data] for stored, _ in changes.modules}
    return tuple(sorted((*modules, *tensors), key=lambda each: first.get(each.name, order.get(each.name, 0))))
