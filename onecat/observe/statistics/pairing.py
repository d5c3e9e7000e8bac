"""Whether B is faster than A, from pairs of neighbouring blocks.

The same requests are sent to both, A and B alternating as ABBA. Requests of one block are not independent, so the unit
of analysis is the pair of blocks: one logarithm of a ratio for each (`log_ratio`). What the order does within a pair
(the second finds warm caches, the machine drifts) turns its sign from pair to pair, as the order does, and is estimated
and taken out, as in a cross-over trial with two periods (https://en.wikipedia.org/wiki/Crossover_study). Over pairs the
mean is trimmed, with the winsorised variance (Yuen, Biometrika 61, 1974, 165-170,
https://doi.org/10.1093/biomet/61.1.165): one spoilt pair neither makes nor hides a difference.

A difference is shown where the interval of 99 % leaves zero out; what is printed is the one of 95 %. Of comparisons
of a server with itself about one in a hundred then shows a difference, and two of twenty hardly ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onecat.observe.statistics.means import Floats
from onecat.observe.statistics.records import LEVEL
from onecat.observe.statistics.student import t_probability, t_quantile

DECIDE_AT = 0.99
"""A difference is shown where an interval of this level leaves zero out."""
LEAST_PAIRS = 8
"""With fewer pairs there is no verdict: trimmed, and with the order taken out, too little is left of them."""
POWER = 0.8
"""How often so many pairs as `pairs_needed` says shall show the difference."""
_TRIMMED = 0.1
_MOST_PAIRS = 100_000

# lower, higher: B's values, compared with A's. undecided: too few pairs for any verdict.
Word = Literal["lower", "higher", "no-difference", "undecided"]


@dataclass(frozen=True)
class PairedComparison:
    """What pairs of blocks say of B's values compared with A's.

    pairs: how many. percent: by how much B's values are higher than A's (negative: lower). low, high: its interval at
    `level`, both None with too few pairs. p: how often a difference like this or a larger one comes by chance alone.
    decided_at: the level of the interval that decides. most_percent: the largest difference, up or down, that is in
    that interval. order_percent: how much higher values are in the second block of a pair than in the first.
    needed: for differences in percent, how many pairs would show them four times of five; None: more than 100 000.
    """

    pairs: int
    word: Word
    percent: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    level: float = LEVEL
    decided_at: float = DECIDE_AT
    most_percent: float | None = None
    order_percent: float | None = None
    needed: tuple[tuple[float, int | None], ...] = ()


def log_ratio(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """The mean logarithm of B's value by A's over the prompts that both answered; None where there is none.

    Parameters:
        a, b: one block's values by the prompt's index, all more than 0.
    """
    both = [index for index in a if index in b]
    if not both:
        return None
    return math.fsum(math.log(b[index] / a[index]) for index in both) / len(both)


def compare_pairs(
    log_ratios: Sequence[float],
    a_first: Sequence[bool] | None = None,
    *,
    level: float = LEVEL,
    decide_at: float = DECIDE_AT,
    differences: Sequence[float] = (2.0, 5.0),
) -> PairedComparison:
    """The verdict over pairs.

    Parameters:
        log_ratios: of B by A, one a pair, in the order of measuring. a_first: for each, whether A was measured first;
            None: ABBA from the first pair on. differences: in percent, for which to say how many pairs would show them.
    """
    order = [number % 2 == 0 for number in range(len(log_ratios))] if a_first is None else list(a_first)
    if len(order) != len(log_ratios):
        raise ValueError(f"{len(log_ratios)} pairs, the order of {len(order)}")
    values = np.asarray(log_ratios, dtype=np.float64)
    if len(values) < LEAST_PAIRS:
        percent = _percent(float(np.median(values))) if len(values) else None
        return PairedComparison(len(values), "undecided", percent, level=level, decided_at=decide_at)
    signs = np.where(order, 1.0, -1.0)
    effect = _order_effect(values, signs)
    mean, error, degrees = _trimmed_mean(values - effect * signs)
    printed, deciding = (t_quantile(0.5 + each / 2, degrees) * error for each in (level, decide_at))
    word: Word = "no-difference"
    if mean + deciding < 0:
        word = "lower"
    elif mean - deciding > 0:
        word = "higher"
    p = (2 * t_probability(-abs(mean) / error, degrees)) if error > 0 else float(mean == 0)
    return PairedComparison(
        pairs=len(values),
        word=word,
        percent=_percent(mean),
        low=_percent(mean - printed),
        high=_percent(mean + printed),
        p=p,
        level=level,
        decided_at=decide_at,
        most_percent=max(abs(_percent(mean - deciding)), abs(_percent(mean + deciding))),
        order_percent=_percent(2 * effect),
        needed=tuple((each, _needed(each, error, len(values), decide_at)) for each in differences),
    )


def pairs_needed(percent: float, comparison_error: float, pairs: int, decide_at: float = DECIDE_AT) -> int | None:
    """How many pairs would show a difference of `percent` four times of five.

    Parameters:
        comparison_error: the standard error of the mean log ratio that `pairs` pairs had.
    """
    return _needed(percent, comparison_error, pairs, decide_at)


def _needed(percent: float, error: float, pairs: int, decide_at: float) -> int | None:
    wanted, one = math.log1p(percent / 100), error * math.sqrt(pairs)

    def shows(number: int) -> bool:
        degrees = _degrees(number)
        return (t_quantile(0.5 + decide_at / 2, degrees) + t_quantile(POWER, degrees)) * one <= wanted * math.sqrt(
            number
        )

    # Halves of numbers of pairs, since ABBA needs even ones.
    low, high = LEAST_PAIRS // 2, _MOST_PAIRS // 2
    if not shows(2 * high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(2 * middle) else (middle + 1, high)
    return 2 * low


def _order_effect(values: Floats, signs: Floats) -> float:
    """Half of what the second block of a pair has more than the first, from the medians of either order."""
    first, second = values[signs > 0], values[signs < 0]
    if not len(first) or not len(second):
        return 0.0
    return float(np.median(first) - np.median(second)) / 2


def _trimmed(number: int) -> int:
    """How many values are cut off at either end."""
    return max(1, int(_TRIMMED * number))


def _degrees(number: int) -> int:
    """Degrees of freedom that so many pairs leave: one is gone for the mean, one for the order."""
    return number - 2 * _trimmed(number) - 2


def _trimmed_mean(values: Floats) -> tuple[float, float, int]:
    """The trimmed mean, its standard error from the winsorised variance, and the degrees of freedom."""
    number, cut = len(values), _trimmed(len(values))
    ordered = np.sort(values)
    kept = number - 2 * cut
    winsorised = np.clip(ordered, ordered[cut], ordered[-cut - 1])
    squares = float(np.sum((winsorised - winsorised.mean()) ** 2))
    # Yuen divides by h (h - 1); the order effect takes one degree more.
    error = math.sqrt(squares / (kept * (kept - 2)))
    return float(ordered[cut : number - cut].mean()), error, _degrees(number)


def _percent(logarithm: float) -> float:
    return math.expm1(logarithm) * 100
