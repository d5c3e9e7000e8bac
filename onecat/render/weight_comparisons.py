"""What `onecat model verify --against` and `--perplexity` print: for a person, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onecat.checkpoints.numbering import counted
from onecat.nvfp4.comparison.limits import limits_of
from onecat.nvfp4.conversion.records import relative_error, sqnr
from onecat.render.columns import clip, harmless, wrap

if TYPE_CHECKING:
    from onecat.nvfp4.codec import Deviation
    from onecat.nvfp4.comparison import ComparedModule, Comparison, Perplexity

WORST = 5
"""Modules that a person is shown; JSON has all."""


def comparison_document(found: Comparison | None) -> dict[str, Any] | None:
    """The object `comparison` of onecat.model-verify/1; None when none was made.

    equal, rounded: how many plain tensors are the original's bit for bit, and but for the rounding of their type.
    """
    if found is None:
        return None
    total = found.total
    return {
        "original": found.original,
        "relative_error": None if total is None else _number(relative_error(total)),
        "sqnr_db": None if total is None else sqnr(total),
        "modules": [_module(each) for each in found.modules],
        "plain_equal": found.equal,
        "plain_rounded": found.rounded,
        "seconds": round(found.seconds, 3),
    }


def _module(each: ComparedModule) -> dict[str, Any]:
    limits = limits_of(each.scheme)
    return {
        "name": each.name,
        "scheme": each.scheme,
        "shape": list(each.shape),
        "relative_error": _number(each.relative_error),
        "sqnr_db": each.sqnr,
        "largest_error": _number(each.deviation.largest),
        "limit": limits.fail,
        "verdict": each.verdict,
        "cause": each.cause,
    }


def _number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if abs(value) < float("inf") else None


def perplexity_document(found: Perplexity | None) -> dict[str, Any] | None:
    """The object `perplexity` of onecat.model-verify/1; None when none was measured."""
    if found is None:
        return None
    return {
        "text": found.text,
        "perplexity": found.ours,
        "original": found.original,
        "percent": found.percent,
        "limit_percent": found.limit,
        "tokens": found.tokens,
        "scored": found.scored,
        "window": found.window,
        "stride": found.stride,
        "bos": found.bos,
        "dtype": found.dtype,
        "tool": found.tool,
        "seconds": round(found.seconds, 3),
    }


def comparison_lines(found: Comparison, columns: int) -> Iterator[str]:
    """The largest errors, and all of them as one."""
    name = columns - 33
    if found.modules:
        head = "largest errors" if len(found.modules) > WORST else "errors"
        yield f"{head:<{name}}{'relative':>11}{'SQNR':>11}{'limit':>11}"
        for each in list(found.worst())[:WORST]:
            limit = f"{limits_of(each.scheme).fail:.1%}"
            yield f"{clip(harmless(each.name), name - 1):<{name}}{_error(each.deviation)}{limit:>11}"
    if found.total is not None:
        yield f"{f'all {len(found.modules)} modules as one':<{name}}{_error(found.total)}"
    told = f"{counted(found.equal, 'tensor')} the same bit for bit"
    if found.rounded:
        told += f", {found.rounded} but for the rounding of their type"
    yield from wrap(f"against {harmless(found.original)}: {told}", columns, following="  ")


def _error(deviation: Deviation) -> str:
    error, noise = relative_error(deviation), sqnr(deviation)
    told = f"{error:.2%}" if error < 10 else f"{error:.1e}"
    return f"{told:>11}{'-' if noise is None else f'{noise:.1f} dB':>11}"


def perplexity_lines(found: Perplexity, columns: int) -> Iterator[str]:
    """Both perplexities and how they were measured."""
    told = f"perplexity {_perplexity(found.ours)}"
    if found.compared:
        told += f", the original's {_perplexity(found.original)}"
    if found.percent is not None:
        told += f": {abs(found.percent):.1f} % {'more' if found.percent >= 0 else 'less'}"
    yield from wrap(told, columns)
    bos = "a beginning before the text" if found.bos else "no beginning added"
    how = (
        f"on {harmless(found.text)}: {found.scored} tokens, windows of {found.window} with half of it before each, "
        f"{bos}; weights turned back, {found.dtype}, {harmless(found.tool)}"
    )
    yield from wrap(how, columns, first="  ", following="  ")


def _perplexity(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}" if value < 1e6 else f"{value:.2e}"
