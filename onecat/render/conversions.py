"""What `onecat model convert` prints: the result for a person, and as JSON."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onecat.checkpoints.numbering import counted
from onecat.render.columns import clip, harmless, wrap
from onecat.render.pulls import duration, size

if TYPE_CHECKING:
    from onecat.nvfp4.conversion import ConvertedModule, LeftAlone, Outcome

WIDTH = 80
WORST = 10
"""Modules that a person is shown."""


def document(outcome: Outcome) -> dict[str, Any]:
    """The result as a JSON-ready document (onecat.model-convert/1)."""
    request, sizes = outcome.request, outcome.sizes
    total = outcome.total
    return {
        "schema": "onecat.model-convert/1",
        "source": str(request.source.absolute()),
        "target": str(request.target.absolute()),
        "scheme": request.scheme,
        "naming": request.naming,
        "search": request.search,
        "dry_run": outcome.dry_run,
        "bytes_before": sizes.before,
        "bytes_after": sizes.after,
        "ratio": round(sizes.before / sizes.after, 4) if sizes.after else None,
        "peak_memory_bytes": sizes.peak,
        "free_bytes": outcome.free if outcome.dry_run else None,
        "relative_error": None if total is None else total.relative_error,
        "sqnr_db": None if total is None else total.sqnr,
        "modules": [_module(each) for each in outcome.modules]
        or [{"name": name} for name in outcome.selection.modules],
        "left_alone": [{"name": each.matrix.module, "why": each.why} for each in outcome.selection.left],
        "quantization": dict(outcome.quantisation),
        "copied": list(outcome.copied),
        "notes": list(outcome.notes),
        "reused": list(outcome.reused),
        "seconds": round(outcome.seconds, 3),
    }


def text(outcome: Outcome) -> str:
    """The document, indented, for a file."""
    return json.dumps(document(outcome), indent=2, ensure_ascii=False) + "\n"


def _module(each: ConvertedModule) -> dict[str, Any]:
    return {
        "name": each.name,
        "shape": list(each.shape),
        "bytes_before": each.bytes_before,
        "bytes_after": each.bytes_after,
        "relative_error": each.relative_error,
        "sqnr_db": each.sqnr,
        "largest_error": each.deviation.largest,
    }


def lines(outcome: Outcome) -> list[str]:
    """The result for a person, in 80 columns."""
    request, sizes = outcome.request, outcome.sizes
    ratio = f", {sizes.before / sizes.after:.2f} times smaller" if sizes.after else ""
    told = f"{size(sizes.before)} become {size(sizes.after)}{ratio}"
    chosen = f"{counted(len(outcome.selection.modules), 'module')} to {request.scheme} ({request.naming})"
    if outcome.dry_run:
        return [
            *_left(outcome.selection.left),
            *_wrapped(outcome.notes),
            f"would convert {chosen}",
            told,
            f"room where it goes: {size(outcome.free)}; memory that it takes: up to {size(sizes.peak)}",
            "nothing was written",
        ]
    made, original = shlex.quote(str(request.target)), shlex.quote(str(request.source))
    return [
        *_worst(outcome.modules),
        *_left(outcome.selection.left),
        f"converted {chosen}",
        f"{told}; {duration(outcome.seconds)}",
        f"check it: onecat model verify {made} --against {original}",
    ]


def _worst(modules: Sequence[ConvertedModule]) -> Iterator[str]:
    shown = sorted(modules, key=lambda each: -each.relative_error)[:WORST]
    name = WIDTH - 22
    yield f"{'largest errors' if len(modules) > WORST else 'errors':<{name}}{'relative':>11}{'SQNR':>11}"
    for each in shown:
        noise = "-" if each.sqnr is None else f"{each.sqnr:.1f} dB"
        yield f"{clip(harmless(each.name), name - 1):<{name}}{each.relative_error:>10.2%} {noise:>10}"


def _left(left: Iterable[LeftAlone]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for each in left:
        by_reason[each.why].append(each.matrix.module)
    for why, names in by_reason.items():
        those = harmless(names[0]) if len(names) == 1 else f"{len(names)} modules, such as {harmless(names[0])}"
        yield from wrap(f"left alone: {those}: {harmless(why)}", WIDTH, following="  ")


def _wrapped(notes: Iterable[str]) -> Iterator[str]:
    for note in notes:
        yield from wrap(f"note: {harmless(note)}", WIDTH, following="  ")
