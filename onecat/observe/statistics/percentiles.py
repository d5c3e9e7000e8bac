"""Percentiles with intervals that suppose nothing about the distribution.

Latencies have long tails, several humps and ties, so their intervals come from order statistics: how many of n values
lie below the true percentile is binomial, whatever the distribution (https://online.stat.psu.edu/stat415/lesson/19).
A bootstrap needs more values for the same, and at the ends (P99) it cannot tell more than the largest one seen.
Where values come in blocks, the count's variance is taken from the blocks instead, as Woodruff did for samples in
clusters (Journal of the American Statistical Association 47, 1952, 635-646).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onecat.observe.statistics.means import Floats, standard_error
from onecat.observe.statistics.records import LEVEL, Estimate
from onecat.observe.statistics.student import t_quantile

LEAST_BLOCKS = 3
"""Two blocks that differ have an interval only where they happen to lie close together, and those hold the percentile
too seldom. Simulated with 200 requests a block, whose means differ by a fifth of the requests' own spread: of 95 %
intervals of two blocks, 93 % hold the median and 86 % the P90; of three blocks, 95 %. Three repetitions are the least
that `onecat bench run` makes unless it is asked for fewer."""


def percentile(values: Sequence[float], p: float) -> float | None:
    """The p-th percentile (0 to 100) between the nearest ranks, as numpy and the engine's benchmark have it."""
    return float(np.percentile(np.asarray(values, dtype=np.float64), p)) if len(values) else None


def percentile_interval(
    values: Sequence[float], p: float, level: float = LEVEL, blocks: Sequence[int] | None = None
) -> Estimate:
    """The p-th percentile (more than 0, less than 100) and its interval, or why there is none.

    Parameters:
        blocks: for each value, the block it was measured in. With several the interval is as wide as the spread
            between blocks demands, and never narrower than that of independent values; two are too few for one.
    """
    if not 0 < p < 100:
        raise ValueError(f"a percentile between 0 and 100 is needed, not {p}")
    found = np.sort(np.asarray(values, dtype=np.float64))
    if not len(found):
        return Estimate(None, level=level, note="nothing was measured")
    value = float(np.percentile(found, p))
    share, number = p / 100, len(found)
    ranks = _ranks_of_independent(number, share, level)
    if ranks is None:
        least = least_for_percentile(p, level)
        return Estimate(value, level=level, note=f"{_too_few(p)}: {number} of at least {least}")
    count = 1 if blocks is None else len(set(blocks))
    if 1 < count < LEAST_BLOCKS:
        told = f"not enough repetitions for a p{p:g} interval: {count} of at least {LEAST_BLOCKS}"
        return Estimate(value, level=level, note=told)
    if blocks is not None and count > 1:
        ranks = _ranks_of_blocks(np.asarray(values, dtype=np.float64), value, blocks, share, level, ranks)
        if ranks is None:
            told = f"{_too_few(p)}: {number} in {count} repetitions, which differ too much"
            return Estimate(value, level=level, note=told)
    low, high = float(found[ranks[0] - 1]), float(found[ranks[1] - 1])
    return Estimate(value, min(low, value), max(high, value), level)


def least_for_percentile(p: float, level: float = LEVEL) -> int:
    """How many independent values an interval for the p-th percentile needs: 368 for P99 at 95 %."""
    share = max(p, 100 - p) / 100
    least = math.ceil(math.log((1 - level) / 2) / math.log(share))
    while _ranks_of_independent(least, p / 100, level) is None:
        least += 1
    return least


def _too_few(p: float) -> str:
    return f"not enough requests for a p{p:g} interval"


def _ranks_of_independent(number: int, share: float, level: float) -> tuple[int, int] | None:
    """Ranks, from 1, between which the percentile lies with at least `level`; None where the values do not reach."""
    below = _binomial_probabilities(number, share)  # [k]: at most k of the values lie below the percentile
    tail = (1 - level) / 2
    low = int(np.searchsorted(below, tail, side="right"))  # the largest rank with P(count < rank) <= tail
    high = int(np.searchsorted(below, 1 - tail, side="left")) + 1
    return (low, high) if low >= 1 and high <= number else None


def _ranks_of_blocks(
    values: Floats, value: float, blocks: Sequence[int], share: float, level: float, least: tuple[int, int]
) -> tuple[int, int] | None:
    """The same from how differently the blocks lie about the percentile; at least as far apart as `least`."""
    below = ((values < value).astype(np.float64) + (values <= value)) / 2  # ties count by half
    error, count = standard_error(below - below.mean(), blocks)
    if error is None:
        return least
    half = t_quantile(0.5 + level / 2, count - 1) * error
    low = min(least[0], math.floor((share - half) * len(values)))
    high = max(least[1], math.ceil((share + half) * len(values)) + 1)
    return (low, high) if low >= 1 and high <= len(values) else None


def _binomial_probabilities(number: int, share: float) -> Floats:
    """P(X <= k) for k = 0 ... number, for X binomial."""
    k = np.arange(number, dtype=np.float64)
    steps = np.log((number - k) / (k + 1)) + math.log(share) - math.log1p(-share)
    logarithms = np.concatenate(([0.0], np.cumsum(steps))) + number * math.log1p(-share)
    return np.asarray(np.minimum(np.cumsum(np.exp(logarithms)), 1.0), dtype=np.float64)
