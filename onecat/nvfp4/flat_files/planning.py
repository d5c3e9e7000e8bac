"""From a flat file to the plan of a plain checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from onecat.checkpoints.numbering import counted
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.dequantisation.plain_tensors import Types, holds_codes, keep
from onecat.nvfp4.dequantisation.targets import (
    PLAIN_DTYPES,
    Target,
    index,
    into_shards,
    own_dtype,
    plain_config,
    step_bytes,
)
from onecat.nvfp4.flat_files.layouts import Layout
from onecat.nvfp4.flat_files.lengths import HEADER_BYTES, SCALE_BYTES, group_size
from onecat.nvfp4.flat_files.opening import FlatSource, names_of
from onecat.nvfp4.flat_files.weights import FlatWeight
from onecat.nvfp4.rewriting import Made, Rewrite, SourceFiles, SourceTensor, Step
from onecat.nvfp4.rewriting.records import Contents


@dataclass(frozen=True)
class Import:
    """The plan, and what there is to say of it.

    source: where its steps read. layout: with the group size that the length came to. flat: tensors of the flat file;
    kept: of the rest. missing: tensors of the model that are in neither; unchecked: why nobody can tell, None where
    they were looked for.
    """

    rewrite: Rewrite
    source: SourceFiles
    layout: Layout
    dtype: str
    flat: int
    kept: int
    source_bytes: int
    target_bytes: int
    missing: tuple[str, ...]
    unchecked: str | None

    def require_whole(self) -> None:
        """Raises OnecatError when tensors of the model are missing: no engine would load what is made."""
        if self.missing:
            raise OnecatError(
                f"{counted(len(self.missing), 'tensor')} of the model would be missing",
                expected="embeddings, norms and all else that is not quantised, in safetensors",
                where=str(self.source.directory),
                details=[*self.missing[:10], *([f"and {len(self.missing) - 10} more"] if self.missing[10:] else [])],
                next_steps=["name a directory with them: onecat model import-bin SRC DST --rest DIR",
                            "the model that was quantised has all of them"],
                code=ExitCode.NO,
            )  # fmt: skip


def plan_import(flat: FlatSource, target: Target) -> Import:
    """Plan the plain checkpoint; nothing is read but what `flat` holds.

    Raises OnecatError when there is no table of tensors, or the length does not add up.
    """
    layout = _with_group_size(flat)
    source = _source(flat, layout)
    dtype, types = _types(flat, target)
    names = [name for name, _ in layout.tensors]
    rest = _rest(flat, set(names))
    missing, unchecked = _missing(flat, {*names, *rest})
    kept = (keep(name, tensor, types.of(tensor)) for name, tensor in rest.items())
    steps = (*_flat_steps(layout, PLAIN_DTYPES[dtype]), *kept)
    shards = into_shards(steps, target.shard_bytes)
    assert flat.config is not None
    rewrite = Rewrite(
        source=flat.directory,
        target=target.directory,
        shards=shards,
        documents={"config.json": plain_config(flat.config, types.own, dtype), **index(shards)},
        copied=flat.companions,
        identity={
            "command": "import-bin", "--dtype": dtype, "--shard-size": target.shard_bytes, "layout": layout.document(),
        },
        restart=target.restart,
        replace=target.replace,
    )  # fmt: skip
    read = sum(source.tensors[name].bytes for step in steps for name in step.reads)
    return Import(
        rewrite, source, layout, dtype, len(names), len(rest), read, sum(map(step_bytes, steps)), missing, unchecked
    )


def _with_group_size(flat: FlatSource) -> Layout:
    """The layout with the group size that the file's length comes to."""
    if flat.config is None:
        raise OnecatError(
            "there is no config.json beside the flat file",
            expected="the model's config.json: no engine loads weights without it",
            where=str(flat.seen.path.parent / "config.json"),
            next_steps=["copy it from the original model, or name that model's directory: --rest DIR"],
        )
    if not flat.layout.tensors:
        raise OnecatError(
            "nothing says which tensors the flat file holds: config.json describes no architecture that onecat knows",
            expected="a table of tensors with their shapes, in the order in which they lie in the file",
            where=str(flat.seen.path),
            next_steps=["write a layout file with `tensors`, and name it: --layout FILE"],
        )
    return replace(flat.layout, group_size=group_size(flat.seen, flat.layout))


def _source(flat: FlatSource, layout: Layout) -> SourceFiles:
    """The parts of the flat file as tensors, and those of the rest, each with the path of its file."""
    seen, size = flat.seen, layout.group_size or 1
    tensors: dict[str, SourceTensor] = {}
    scale_at = HEADER_BYTES if seen.has_header else 0
    code_at = HEADER_BYTES + SCALE_BYTES * (layout.elements // size) if seen.has_header else 0
    codes_file = str(seen.path.absolute())
    scales_file = codes_file if seen.scales is None else str(seen.scales.absolute())
    for each in layout.tensors:
        groups, length = each.elements // size, each.elements // 2
        tensors[_scales(each.name)] = SourceTensor(scales_file, "F16", (groups,), scale_at, groups * SCALE_BYTES)
        tensors[_codes(each.name)] = SourceTensor(codes_file, "U32", (length // 4,), code_at, length)
        scale_at, code_at = scale_at + groups * SCALE_BYTES, code_at + length
    headers = {}
    if flat.rest is not None:
        home = flat.rest.directory.absolute()
        for name, tensor in flat.rest.source.tensors.items():
            tensors[name] = tensor._replace(file=str(home / tensor.file))
        headers = {str(home / file): header for file, header in flat.rest.source.headers.items()}
    return SourceFiles(flat.seen.path.parent, tensors, headers)


def _rest(flat: FlatSource, held: set[str]) -> dict[str, SourceTensor]:
    """Plain tensors that the flat file does not hold. Raises OnecatError when some of them are quantised."""
    if flat.rest is None:
        return {}
    modules, _ = flat.rest.gathered
    codes = [name for name, tensor in flat.rest.source.tensors.items() if holds_codes(tensor.dtype)]
    codes += [module.names[part] for module in modules.values() for part in module.scales]
    if codes:
        raise OnecatError(
            f"{flat.rest.directory} is quantised itself: it has {codes[0]}",
            expected="a plain checkpoint with embeddings and norms",
            where=str(flat.rest.directory),
            next_steps=[f"turn it back first: onecat model dequantize {flat.rest.directory} PLAIN"],
            code=ExitCode.NO,
        )
    return {name: tensor for name, tensor in flat.rest.source.tensors.items() if name not in held}


def _scales(name: str) -> str:
    return f"{name} (scales)"


def _codes(name: str) -> str:
    return f"{name} (codes)"


def _types(flat: FlatSource, target: Target) -> tuple[str, Types]:
    stored = () if flat.rest is None else [(each.dtype, each.bytes) for each in flat.rest.source.tensors.values()]
    own = own_dtype(flat.config or {}, stored)
    dtype = target.dtype or own
    return dtype, Types(own, dtype)


def _missing(flat: FlatSource, there: set[str]) -> tuple[tuple[str, ...], str | None]:
    """Tensors of the model that are not there, and why that cannot be told (None where it can)."""
    if not flat.architecture.weights or flat.architecture.estimated:
        return (), flat.architecture.estimated or "config.json describes no architecture that onecat knows"
    wanted = (name for each in flat.architecture.weights if each.part != "draft" for name in names_of(each))
    return tuple(name for name in wanted if name not in there), None


def _flat_steps(layout: Layout, dtype: str) -> Iterator[Step]:
    for name, shape in layout.tensors:
        weight = FlatWeight(
            name.removesuffix(".weight"), shape, layout.group_size or 1, _scales(name), _codes(name), layout
        )
        yield Step(weight.module, (Made(name, dtype, shape),), (weight.scales, weight.codes), _make(weight, dtype))


def _make(weight: FlatWeight, dtype: str) -> Callable[[SourceFiles], Contents]:
    def make(source: SourceFiles) -> Contents:
        return weight.contents(source, dtype)

    return make
