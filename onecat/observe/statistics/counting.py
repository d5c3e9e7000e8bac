"""What is counted: shares, rates, errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from onecat.observe.statistics.means import standard_error
from onecat.observe.statistics.records import LEVEL, Estimate
from onecat.observe.statistics.student import t_quantile


def errors_by_kind(kinds: Iterable[str | None]) -> dict[str, int]:
    """How often each kind occurred, the most frequent first; None is no error."""
    counted = Counter(kind for kind in kinds if kind is not None)
    return dict(sorted(counted.items(), key=lambda each: (-each[1], each[0])))


def share_interval(good: Sequence[bool], blocks: Sequence[int] | None = None, level: float = LEVEL) -> Estimate:
    """The share of `good`, between 0 and 1: as of requests that keep their objectives.

    The interval is Wilson's (https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval), which is sound
    for shares near 0 and 1; with two blocks or more it counts only as many requests as the spread between blocks
    leaves of them (the design effect), with t for so many blocks.
    """
    if not len(good):
        return Estimate(None, level=level, note="nothing was measured")
    found = np.asarray(good, dtype=np.float64)
    number, share = float(len(found)), float(found.mean())
    z = t_quantile(0.5 + level / 2, math.inf)
    if blocks is not None and len(set(blocks)) > 1:
        error, count = standard_error(found - share, blocks)
        z = t_quantile(0.5 + level / 2, count - 1)
        simple = share * (1 - share) / number
        number /= max(1.0, error**2 / simple) if error and simple else 1.0
    middle = (share + z * z / (2 * number)) / (1 + z * z / number)
    half = z / (1 + z * z / number) * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)), level)


def ratio_interval(amounts: Sequence[float], seconds: Sequence[float], level: float = LEVEL) -> Estimate:
    """A rate: the sum of amounts by the sum of seconds, one of each for every block; as tokens a second.

    The interval is that of the ratio estimator over blocks
    (https://online.stat.psu.edu/stat506/lesson/5), so it needs two blocks at least.
    """
    if len(amounts) != len(seconds):
        raise ValueError(f"{len(amounts)} amounts, {len(seconds)} times")
    total = math.fsum(seconds)
    if total <= 0:
        return Estimate(None, level=level, note="nothing was measured")
    counted, times = np.asarray(amounts, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    value = math.fsum(amounts) / total
    if len(counted) < 2:
        return Estimate(value, level=level, note="one repetition alone tells nothing about its spread")
    error, count = standard_error(counted - value * times, None)
    half = t_quantile(0.5 + level / 2, count - 1) * (error or 0.0) / (total / len(times))
    return Estimate(value, max(0.0, value - half), value + half, level)
