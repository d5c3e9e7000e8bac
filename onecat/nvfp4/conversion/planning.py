"""From a checkpoint and what a person wants to the files of the new one; nothing is written here."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onecat import __version__
from onecat.checkpoints import Checkpoint, read_quantization
from onecat.checkpoints.sources import CONFIG, INDEX
from onecat.nvfp4.conversion.formats import Format, step
from onecat.nvfp4.conversion.ignoring import expressions, full_names, globs, unlisted
from onecat.nvfp4.conversion.matrices import matrices
from onecat.nvfp4.conversion.records import Group, Matrix, Request, Selection, Sizes
from onecat.nvfp4.conversion.selection import select
from onecat.nvfp4.rewriting import Made, Rewrite, Shard, SourceFiles, Step, size_of

_EXPERT = re.compile(r"\.experts\.[0-9]+\.")

PROVENANCE = "onecat_conversion.json"
"""A small file that says how the checkpoint was made; engines do not look at it."""


BESIDE = 300_000_000
"""Bytes of memory that a run takes beside the tensors that it works on, at most."""


@dataclass(frozen=True)
class Plan:
    """work: for the executor. quantisation: what the new config.json says."""

    work: Rewrite
    selection: Selection
    sizes: Sizes
    quantisation: Mapping[str, Any]


def plan(
    request: Request, seen: Checkpoint, source: SourceFiles, config: dict[str, Any], copied: Sequence[str], form: Format
) -> Plan:
    """The files of the new checkpoint. Raises OnecatError for a pattern that covers nothing."""
    selection = select(matrices(seen.architecture, config, source), form, request.include, request.ignore)
    shards = _shards(source, selection, form)
    documents = quantised_documents(form, config, selection)
    _hold_true(documents, selection)
    texts = {name: _json(each) for name, each in documents.items()}
    if len(shards) > 1:
        texts[INDEX] = _json(_index(shards))
    chosen = {
        "scheme": request.scheme,
        "naming": request.naming,
        "search": request.search,
        "include": sorted(request.include),
        "ignore": sorted(request.ignore),
        "onecat": __version__,
    }
    texts[PROVENANCE] = _json({"schema": "onecat.conversion/1", **chosen, "source": _fingerprint(source)})
    work = Rewrite(
        request.source, request.target, shards, texts, tuple(copied), {"command": "convert", **chosen},
        restart=request.restart, replace=request.replace,
    )  # fmt: skip
    stated = documents[CONFIG]["quantization_config"]
    return Plan(work, selection, _sizes(source, shards, selection), stated)


def quantised_documents(form: Format, config: dict[str, Any], selection: Selection) -> dict[str, Any]:
    """config.json, and what stands beside it, by file name, for what was selected."""
    if form.container == "fp8":
        ignored = full_names(selection.left)
    elif form.container == "modelopt":
        ignored = globs(selection.left, selection.modules)
    else:
        ignored = expressions(selection.left, selection.modules)
    return form.documents(config, ignored)


def _shards(source: SourceFiles, selection: Selection, form: Format) -> tuple[Shard, ...]:
    """The source's files in their order; a group is where its first tensor was, other tensors where they were."""
    of_tensor: dict[str, list[Group]] = defaultdict(list)
    for group in selection.groups:
        for tensor in dict.fromkeys(each.tensor for each in group.members):
            of_tensor[tensor].append(group)
    begun: set[str] = set()
    steps: dict[str, list[Step]] = {file: [] for file in source.headers}
    for name, stored in source.tensors.items():
        groups = of_tensor.get(name)
        if groups is None:
            steps[stored.file].append(Step(name, (Made(name, stored.dtype, stored.shape),), (name,)))
        elif groups[0].name not in begun:
            begun.update(each.name for each in groups)
            steps[stored.file].append(step(name if len(groups) > 1 else groups[0].name, groups, form))
    filled = [file for file, those in steps.items() if those]
    return tuple(
        Shard(name, tuple(steps[file]), {"format": "pt", **(source.headers[file].metadata or {})})
        for file, name in zip(filled, _names(filled, len(steps)), strict=True)
    )


def _names(filled: Sequence[str], count: int) -> Sequence[str]:
    """The files' own names, which say how many there are; counted anew when some have nothing left in them."""
    if len(filled) == count:
        return filled
    if len(filled) == 1:
        return ("model.safetensors",)
    return [f"model-{number:05d}-of-{len(filled):05d}.safetensors" for number in range(1, len(filled) + 1)]


def _index(shards: Sequence[Shard]) -> dict[str, Any]:
    placed = {made.name: shard.file for shard in shards for each in shard.steps for made in each.outputs}
    total = sum(size_of(made) for shard in shards for each in shard.steps for made in each.outputs)
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))}


def _sizes(source: SourceFiles, shards: Sequence[Shard], selection: Selection) -> Sizes:
    before = sum(each.bytes for each in source.tensors.values())
    after = sum(size_of(made) for shard in shards for each in shard.steps for made in each.outputs)
    read = {each.tensor for group in selection.groups for each in group.members}
    ahead = 2 * max((source.tensors[name].bytes for name in read), default=0)  # as much as the executor reads ahead
    group = max((each.bytes for each in selection.groups), default=0)
    return Sizes(before, after, max(ahead, group) + group // 2 + BESIDE)


def _hold_true(documents: Mapping[str, dict[str, Any]], selection: Selection) -> None:
    """Whether the new configuration says of each module how it is stored. Raises RuntimeError: a fault of onecat."""
    claimed = read_quantization(documents)
    if claimed is None:
        raise RuntimeError("the configuration of the new checkpoint claims no quantisation")
    expected = {_EXPERT.sub(".experts.*.", name): (matrix, quantised) for name, matrix, quantised in _told(selection)}
    for module, (matrix, quantised) in expected.items():
        told = claimed.scheme_of(module, matrix.kind, matrix.part) is not None
        if told != quantised:
            raise RuntimeError(f"the configuration of the new checkpoint says the wrong thing of {module}")


def _told(selection: Selection) -> Iterator[tuple[str, Matrix, bool]]:
    """Modules that a library may take for linear ones, each with whether it is quantised."""
    beside = unlisted(selection.left)
    for group in selection.groups:
        yield from ((each.module, each, True) for each in group.members)
    yield from ((each.matrix.module, each.matrix, False) for each in selection.left if each.matrix.module not in beside)


def _fingerprint(source: SourceFiles) -> dict[str, Any]:
    """What the checkpoint was made of: its directory's name, its tensors, and a digest of its headers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(source.tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape} {tensor.file} {tensor.begin}\n".encode())
    return {
        "directory": source.directory.absolute().name,
        "tensors": len(source.tensors),
        "bytes": sum(each.bytes for each in source.tensors.values()),
        "headers_sha256": digest.hexdigest(),
    }


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
