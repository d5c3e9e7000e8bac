"""Repack a checkpoint: read both, plan, carry the plan out, and say what the rounding has cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onecat.checkpoints.quantization.reading import SIDE_FILES
from onecat.checkpoints.sources import CONFIG, INDEX
from onecat.nvfp4.adapters.base import HEADS, Base
from onecat.nvfp4.adapters.changes import Changes, read_changes
from onecat.nvfp4.adapters.dithering import Rounding
from onecat.nvfp4.adapters.fusing import group_of
from onecat.nvfp4.adapters.making import Maker
from onecat.nvfp4.adapters.opening import open_adapter, open_base
from onecat.nvfp4.adapters.planning import Layout, Touched, lay_out, rewrite_of
from onecat.nvfp4.adapters.shapes import JOINED_MODELS
from onecat.nvfp4.adapters.storage import StoredModule, stored_module
from onecat.nvfp4.codec import Search, choose, weights_in
from onecat.nvfp4.companions import companions
from onecat.nvfp4.dequantisation import Original
from onecat.nvfp4.rewriting import Rewritten, Say, Show, check_target, rewrite


@dataclass(frozen=True)
class Request:
    """What is to be merged.

    search: how block scales are chosen (`model convert --search`). rounding: of merged weights to codes (`dithering`);
    plain weights are rounded to the nearest. jobs: threads, None for one on each processor. restart, replace: as
    `Rewrite` has them.
    """

    base: Path
    adapter: Path
    target: Path
    search: Search = "minmax"
    rounding: Rounding = "nearest"
    jobs: int | None = None
    restart: bool = False
    replace: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class ModuleResult:
    """A changed module or tensor, with lengths (Frobenius norms) of matrices.

    update: of the change, relative to the base. error: of what is stored minus the exact merge, relative to the merge;
    conversion_error: what a conversion of the exact merge would have. kept: the share of the update that what is stored
    holds, 1 for all: the projection of (stored - base) on it; None for no update. halvings: how often the block scales
    of its group were halved to make room (in a total the most often).
    """

    touched: Touched
    update: float
    error: float
    conversion_error: float
    kept: float | None
    halvings: int = 0


@dataclass(frozen=True)
class Repacked:
    """What was done, or would be. modules: empty when nothing was written; total: over all of them."""

    request: Request
    touched: tuple[Touched, ...]
    untouched: int
    rescaled: tuple[str, ...]
    notes: tuple[str, ...]
    modules: tuple[ModuleResult, ...] = ()
    total: ModuleResult | None = None
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    reused: tuple[str, ...] = ()
    dry_run: bool = False


def repack(request: Request, show: Show = lambda progress: None, say: Say = lambda line: None) -> Repacked:
    """Write the base with the adapter merged into it, or go on with what an earlier run of the same request has left.

    Raises OnecatError when one of the directories is not what it should be, when any tensor or setting of the adapter
    cannot be merged (naming it), when the target holds something else or has no room, and for weights that are NaN or
    infinite; OSError when a file cannot be read or written.
    """
    original = open_base(request.base, request.adapter, request.target)
    adapter = open_adapter(request.adapter)
    base = _base(original)
    changes = read_changes(adapter.settings, adapter.source, base)
    notes = (*_base_note(adapter.settings.base, request.base), *changes.notes)
    maker = Maker(adapter.source, choose(request.jobs, weights_in(request.base)), request.search, request.rounding)
    layout = lay_out(changes, original.source, _neighbours(changes, base), maker)
    documents = {
        name: (request.base / name).read_text(encoding="utf-8")
        for name in (CONFIG, INDEX, *SIDE_FILES)
        if (request.base / name).is_file()
    }
    settings = {"adapter_config.json": adapter.document, "search": request.search, "rounding": request.rounding}
    work = rewrite_of(
        layout, original.source, adapter.source, request.target, documents, companions(request.base), settings,
        restart=request.restart, replace=request.replace,
    )  # fmt: skip
    if request.dry_run:
        check_target(work, original.source)
        return Repacked(request, layout.touched, layout.untouched, (), notes, dry_run=True)
    for note in notes:
        say(f"note: {note}")
    return _result(request, layout, notes, rewrite(work, original.source, show, say))


def _base(original: Original) -> Base:
    quantization = original.checkpoint.quantization

    def block_of(module: str) -> tuple[int, int] | None:
        scheme = None if quantization is None else quantization.scheme_of(module)
        return None if scheme is None else scheme.block

    architecture = original.checkpoint.architecture
    has_head = any(name.rpartition(".")[0].rpartition(".")[2] in HEADS for name in original.source)
    tied = architecture.tied_embeddings and not has_head
    return Base(original.source, block_of, tied, architecture.model_type in JOINED_MODELS)


def _neighbours(changes: Changes, base: Base) -> dict[str, StoredModule]:
    """NVFP4 modules that engines join with changed ones, and that do not change."""
    changed = {stored.stem for stored, _ in changes.modules}
    joined = (each for stored, _ in changes.modules if stored.kind == "nvfp4" for each in group_of(stored.stem))
    found = {}
    for stem in joined:
        if stem not in changed and f"{stem}.weight_scale" in base.source.tensors:
            stored = stored_module(base.source, stem, base.block_of)
            if stored.kind == "nvfp4":
                found[stem] = stored
    return found


def _base_note(stated: str | None, base: Path) -> list[str]:
    if not stated or Path(stated).name.lower() == base.resolve().name.lower():
        return []
    return [f"the adapter says that it was trained on {stated}; the base is {base}"]


def _result(request: Request, layout: Layout, notes: tuple[str, ...], done: Rewritten) -> Repacked:
    measured: dict[str, Mapping[str, float]] = {each.module: each.measured for each in done.reports if each.measured}
    modules = tuple(_module(each, measured[each.name]) for each in layout.touched)
    halved = {each.touched.name for each in modules if each.halvings}
    rescaled = tuple(each for each in layout.neighbours if halved & set(group_of(each)))
    sums: dict[str, float] = {}
    for found in measured.values():
        for name, value in found.items():
            sums[name] = max(sums.get(name, 0.0), value) if name == "halvings" else sums.get(name, 0.0) + value
    whole = Touched("all", "", (), 0, 0.0)
    return Repacked(
        request, layout.touched, layout.untouched - 2 * len(rescaled), rescaled, notes, modules,
        _module(whole, sums) if sums else None, done.bytes_read, done.bytes_written, done.seconds, done.reused,
    )  # fmt: skip


def _module(touched: Touched, sums: Mapping[str, float]) -> ModuleResult:
    update = sums["update"]
    kept = (sums["moved"] + update - sums["error"]) / (2 * update) if update else None
    return ModuleResult(
        touched, _relative(update, sums["base"]), _relative(sums["error"], sums["merged"]),
        _relative(sums["fresh"], sums["merged"]), kept, int(sums["halvings"]),
    )  # fmt: skip


def _relative(squared: float, of: float) -> float:
    return math.sqrt(squared / of) if of else (0.0 if not squared else math.inf)
