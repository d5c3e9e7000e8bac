"""What `onecat model repack` prints: the result for a person, and as JSON."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onecat.checkpoints.numbering import counted
from onecat.render.columns import clip, harmless, wrap
from onecat.render.pulls import duration, size

if TYPE_CHECKING:
    from onecat.nvfp4.adapters import ModuleResult, Repacked

WIDTH = 80
WORST = 10
"""Modules that a person is shown."""
LITTLE_KEPT = 0.5
"""Below this share of the update a person is told how more of it survives."""
ADVICE = (
    "rounding took much of the update away: the weights of a quantised base stand on the grid of its codes, and stay "
    "there when the update is smaller than half a step. Merge the adapter into the unquantised base (onecat model "
    "repack PLAIN ADAPTER MERGED) and convert that (onecat model convert MERGED DST); or, without it, take "
    "--rounding dithered, which keeps the update and adds noise."
)


def document(outcome: Repacked) -> dict[str, Any]:
    """The result as a JSON-ready document (onecat.model-repack/1)."""
    request = outcome.request
    found = {each.touched.name: _figures(each) for each in outcome.modules}
    return {
        "schema": "onecat.model-repack/1",
        "base": str(request.base.absolute()),
        "adapter": str(request.adapter.absolute()),
        "target": str(request.target.absolute()),
        "search": request.search,
        "rounding": request.rounding,
        "dry_run": outcome.dry_run,
        "modules": [
            {
                "name": each.name,
                "scheme": each.kind,
                "shape": list(each.shape),
                "rank": each.rank,
                "scaling": each.scaling,
                **found.get(each.name, {}),
            }
            for each in outcome.touched
        ],
        "total": None if outcome.total is None else _figures(outcome.total),
        "touched": len(outcome.touched),
        "untouched_tensors": outcome.untouched,
        "rescaled": list(outcome.rescaled),
        "notes": list(outcome.notes),
        "bytes_read": outcome.bytes_read,
        "bytes_written": outcome.bytes_written,
        "reused": list(outcome.reused),
        "seconds": round(outcome.seconds, 3),
    }


def _figures(each: ModuleResult) -> dict[str, Any]:
    return {
        "relative_update": _finite(each.update),
        "relative_error": _finite(each.error),
        "conversion_error": _finite(each.conversion_error),
        "update_kept": each.kept,
        "scale_halvings": each.halvings,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def lines(outcome: Repacked) -> list[str]:
    """The result for a person, in 80 columns."""
    kinds = Counter(each.kind for each in outcome.touched)
    schemes = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    told = f"{counted(len(outcome.touched), 'module')} ({schemes})"
    stays = f"{counted(outcome.untouched, 'tensor')} {'stays' if outcome.untouched == 1 else 'stay'} byte for byte"
    if outcome.dry_run:
        notes = [line for note in outcome.notes for line in wrap(f"note: {harmless(note)}", WIDTH, following="  ")]
        return [*notes, f"would change {told}", stays, "nothing was written"]
    text = [*_worst(outcome.modules), f"changed {told}", stays]
    if outcome.rescaled:
        names = harmless(outcome.rescaled[0]) + (" and more" if len(outcome.rescaled) > 1 else "")
        text += wrap(
            f"{counted(len(outcome.rescaled), 'module')} beside them ({names}) got scales divided by a power of two, "
            "codes as they were: engines take one scale for what they join",
            WIDTH, following="  ",
        )  # fmt: skip
    if (total := outcome.total) is not None and total.kept is not None:
        text += wrap(
            f"together: the update is {_share(total.update)} of the base, the rounding error {_share(total.error)} of "
            f"the merge (a conversion of it: {_share(total.conversion_error)}), and {total.kept:.0%} of the update "
            "is kept",
            WIDTH, following="  ",
        )  # fmt: skip
        if total.kept < LITTLE_KEPT:
            text += wrap(f"note: {ADVICE}", WIDTH, following="  ")
    text.append(f"{size(outcome.bytes_written)} written in {duration(outcome.seconds)}")
    return [*text, f"check it: onecat model verify {shlex.quote(str(outcome.request.target))}"]


def _worst(modules: Sequence[ModuleResult]) -> Iterator[str]:
    shown = sorted(modules, key=lambda each: -each.error)[:WORST]
    name = WIDTH - 40
    heading = "largest errors" if len(modules) > WORST else "errors"
    yield f"{heading:<{name}}{'update':>10}{'error':>10}{'converted':>11}{'kept':>9}"
    for each in shown:
        kept = "-" if each.kept is None else f"{each.kept:.0%}"
        yield (
            f"{clip(harmless(each.touched.name), name - 1):<{name}}{_share(each.update):>10}{_share(each.error):>10}"
            f"{_share(each.conversion_error):>11}{kept:>9}"
        )


def _share(value: float) -> str:
    return f"{value:.2%}" if value >= 0.0001 or not value else f"{value:.0e}"
