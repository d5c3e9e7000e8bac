"""What `onecat model import-bin` prints: what the file is and what is assumed of it, the result, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onecat.checkpoints.numbering import counted, first_of
from onecat.render.columns import harmless, wrap
from onecat.render.pulls import duration, size

if TYPE_CHECKING:
    from onecat.nvfp4.flat_files import FlatSource, Import
    from onecat.nvfp4.rewriting import Rewritten

WIDTH = 80
SUSPICIOUS = 0.25
"""Standard deviations that the mean of a matrix may be away from 0: trained ones are nearer by far, and a zero point
that is wrong by one moves it by about a third."""


def document(flat: FlatSource, plan: Import | None, done: Rewritten | None) -> dict[str, Any]:
    """The result as a JSON-ready document (onecat.model-import-bin/1).

    layout: may be saved as a layout file. suspicious: tensors whose mean is far from 0. plan: None where the file was
    only looked at; done: None where nothing was written.
    """
    seen = flat.seen
    layout = plan.layout if plan is not None else flat.layout
    return {
        "schema": "onecat.model-import-bin/1",
        "file": str(seen.path.absolute()),
        "variant": "header" if seen.has_header else "two files",
        "bytes": seen.size + seen.scales_size,
        "groups": seen.all_groups,
        "own_group_size": seen.own_group_size,
        "layout": layout.document(),
        "table_from": str(flat.table_from) if flat.table_from is not None else None,
        "target": str(plan.rewrite.target.absolute()) if plan is not None and done is not None else None,
        "dry_run": done is None,
        "dtype": plan.dtype if plan is not None else None,
        "flat_tensors": plan.flat if plan is not None else None,
        "kept": plan.kept if plan is not None else None,
        "missing": list(plan.missing) if plan is not None else [],
        "unchecked": plan.unchecked if plan is not None else None,
        "source_bytes": plan.source_bytes if plan is not None else None,
        "target_bytes": plan.target_bytes if plan is not None else None,
        "files": [shard.file for shard in plan.rewrite.shards] if plan is not None else [],
        "suspicious": suspicious(done) if done is not None else [],
        "reused": list(done.reused) if done is not None else [],
        "seconds": round(done.seconds, 3) if done is not None else None,
    }


def suspicious(done: Rewritten) -> list[str]:
    """Modules whose mean is farther from 0 than those of trained matrices are."""
    return [
        each.module for each in done.reports
        if "mean" in each.measured and abs(each.measured["mean"]) > SUSPICIOUS * each.measured["deviation"]
    ]  # fmt: skip


def lines(flat: FlatSource, plan: Import, done: Rewritten | None) -> list[str]:
    """The result for a person."""
    text = [*seen_lines(flat), *_rows(_assumed(flat, plan)), *_rows(_held(plan))]
    if done is None:
        return [*text, "the length adds up; nothing was written"]
    odd = suspicious(done)
    if odd:
        told = f"the mean of {len(odd)} of {plan.flat} matrices is far from 0, as of {odd[0]}: "
        text += _rows([("warning", f"{told}zero_point, codes or order is probably not what the file has")])
    return [*text, f"{harmless(str(plan.rewrite.target))} is complete; {duration(done.seconds)}"]


def seen_lines(flat: FlatSource) -> list[str]:
    """What the file seems to be, by itself."""
    seen = flat.seen
    kind = "magic 1c 0a 0d 0a" if seen.has_header else "no header, scales.bin beside it"
    groups = "no whole header" if seen.all_groups is None else counted(seen.all_groups, "group")
    own = seen.own_group_size
    length = "no group size makes its length" if own is None else f"{own * (seen.all_groups or 0)} weights"
    return _rows([
        ("file", f"{seen.path}: {kind}, {size(seen.size + seen.scales_size)}"),
        ("by itself", f"{groups}{'' if own is None else f' of {own}'}: {length}"),
    ])  # fmt: skip


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    """A word, and what there is to say of it, in lines of 80 columns."""
    return [line for word, told in rows for line in wrap(harmless(told), WIDTH, f"{word:<11}", " " * 11)]


def _assumed(flat: FlatSource, plan: Import) -> Iterator[tuple[str, str]]:
    layout = plan.layout
    meaning = f"unsigned, {layout.zero_point:g} is zero" if layout.codes == "unsigned" else layout.codes
    stated = f"as {flat.layout_file.name} says" if flat.layout_file is not None else "assumed; a layout file can say it"
    yield "codes", f"{meaning}, {layout.order}; {stated}"
    origin = flat.table_from.name if flat.table_from is not None else "nowhere"
    order = "" if flat.table_from == flat.layout_file else ", linear weights layer by layer (assumed)"
    yield "table", f"{counted(len(layout.tensors), 'tensor')} from {origin}{order}; groups of {layout.group_size}"


def _held(plan: Import) -> Iterator[tuple[str, str]]:
    matrices = "1 matrix" if plan.flat == 1 else f"{plan.flat} matrices"
    kept = f" and {counted(plan.kept, 'plain tensor')}" if plan.kept else ""
    grown = f"{size(plan.source_bytes)} -> {size(plan.target_bytes)} of {plan.dtype}"
    yield "holds", f"{matrices} of the flat file{kept}: {grown}"
    if plan.missing:
        yield "missing", f"{first_of(plan.missing, 2)}: --rest DIR names a checkpoint with them"
    if plan.unchecked is not None:
        yield "unchecked", f"whether tensors are missing: {plan.unchecked}"
