"""Convert a checkpoint: look at it, plan, carry the plan out, and say what was lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onecat.checkpoints.json_text import parse_json
from onecat.checkpoints.safetensors_header import HeaderError
from onecat.checkpoints.sources import CONFIG
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.codec import Codec, Deviation, choose, weights_in
from onecat.nvfp4.companions import companions
from onecat.nvfp4.conversion.admission import admitted
from onecat.nvfp4.conversion.formats import Format
from onecat.nvfp4.conversion.fp8_formats import CompressedTensorsFp8Block, DeepseekFp8Block
from onecat.nvfp4.conversion.nvfp4_formats import CompressedTensorsNvfp4, ModeloptNvfp4
from onecat.nvfp4.conversion.planning import Plan, plan
from onecat.nvfp4.conversion.records import ConvertedModule, Outcome, Request
from onecat.nvfp4.rewriting import Rewritten, Say, Show, check_target, open_source, rewrite, size_of
from onecat.space import room

REASONS = 10
"""Modules of which a person is told why, where none can be converted."""

_NAMINGS = {"nvfp4": ("compressed-tensors", "modelopt"), "fp8-block": ("compressed-tensors", "deepseek")}


def convert(request: Request, show: Show = lambda progress: None, say: Say = lambda line: None) -> Outcome:
    """Write the converted checkpoint, or go on with what an earlier run of the same request has left.

    Raises OnecatError when the source is no plain checkpoint, when options do not go together, when the target holds
    something else or has no room, and for weights that are NaN or infinite; OSError when a file cannot be read or
    written.
    """
    codec = choose(request.jobs, weights_in(request.source))
    form = _format(request, codec)
    seen = admitted(request.source, request.target)
    try:
        source = open_source(request.source, seen.files)
    except HeaderError as error:
        raise OnecatError(f"a weight file of {request.source} {error}", where=str(request.source)) from error
    config = parse_json((request.source / CONFIG).read_bytes())
    for stated in ("quantization_config", "compression_config"):  # that say that there is none
        config.pop(stated, None)
    planned = plan(request, seen, source, config, companions(request.source), form)
    if not planned.selection.groups:
        raise OnecatError(
            f"no matrix of {request.source} is left to be converted to {request.scheme}",
            expected="linear layers of a language model",
            where=str(request.source.absolute()),
            details=[f"{each.matrix.module}: {each.why}" for each in planned.selection.left[:REASONS]],
            next_steps=["take --include or --ignore away" if request.include or request.ignore else "use it as it is"],
            code=ExitCode.NO,
        )
    notes = tuple(_notes(seen.architecture.estimated))
    if request.dry_run:
        check_target(planned.work, source)
        free = room(request.target).bytes
        return Outcome(
            request, planned.selection, planned.sizes, planned.quantisation, notes, free=free,
            copied=planned.work.copied, dry_run=True,
        )  # fmt: skip
    for note in notes:
        say(note)
    done = rewrite(planned.work, source, show, say)
    return Outcome(
        request, planned.selection, planned.sizes, planned.quantisation, notes, tuple(_modules(planned, form, done)),
        done.reused, done.seconds, copied=planned.work.copied,
    )  # fmt: skip


def _format(request: Request, codec: Codec) -> Format:
    allowed = _NAMINGS[request.scheme]
    if request.naming not in allowed:
        raise OnecatError(
            f"{request.scheme} is not stored with the names of {request.naming}",
            expected=f"--naming {' or '.join(allowed)}",
        )
    if request.scheme == "fp8-block" and request.search == "mse":
        raise OnecatError(
            "--search mse is for nvfp4: FP8 has an exponent for each weight, and gains nothing by it",
            expected="--search minmax",
        )
    if request.scheme == "nvfp4":
        kind = CompressedTensorsNvfp4 if request.naming == "compressed-tensors" else ModeloptNvfp4
        return kind(codec, request.search)
    return CompressedTensorsFp8Block(codec) if request.naming == "compressed-tensors" else DeepseekFp8Block(codec)


def _notes(estimated: str | None) -> Iterator[str]:
    if estimated is not None:
        yield (
            f"{estimated}: what is converted is told by the names of tensors; see with --dry-run, and compare answers "
            "before you trust the result"
        )


def _modules(planned: Plan, form: Format, done: Rewritten) -> Iterator[ConvertedModule]:
    measured: dict[str, float] = {}
    for report in done.reports:
        measured.update(report.measured)
    for group in planned.selection.groups:
        for each in group.members:
            after = sum(size_of(made) for made in form.made(each))
            yield ConvertedModule(each.module, each.shape, each.bytes, after, _deviation(measured, each.module))


def _deviation(measured: Mapping[str, float], module: str) -> Deviation:
    values: dict[str, Any] = {name: measured[f"{module}/{name}"] for name in Deviation._fields}
    return Deviation(**(values | {"elements": int(values["elements"])}))
