"""Means with t intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onecat.observe.statistics.records import LEVEL, Estimate
from onecat.observe.statistics.student import t_quantile

Floats = NDArray[np.float64]


def mean_interval(values: Sequence[float], blocks: Sequence[int] | None = None, level: float = LEVEL) -> Estimate:
    """The mean, with a t interval.

    Parameters:
        blocks: for each value, the block it was measured in. With two blocks or more, each block's sum counts as one
            observation (the cluster-robust variance of a mean, with as many degrees of freedom as blocks less one);
            with one, the values count as independent, which makes the interval narrower than it should be where the
            machine drifts.
    """
    found = np.asarray(values, dtype=np.float64)
    if not len(found):
        return Estimate(None, level=level, note="nothing was measured")
    value = float(found.mean())
    error, count = standard_error(found - value, blocks)
    if error is None:
        return Estimate(value, level=level, note="one value alone tells nothing about its spread")
    half = t_quantile(0.5 + level / 2, count - 1) * error
    return Estimate(value, value - half, value + half, level)


def standard_error(residuals: Floats, blocks: Sequence[int] | None) -> tuple[float | None, int]:
    """The standard error of a mean from what remains of the values without it, and how many observations it rests on.

    https://en.wikipedia.org/wiki/Clustered_standard_errors (with the factor k / (k - 1) for k blocks).
    """
    grouped = residuals if blocks is None else sums_by_block(residuals, blocks)
    if blocks is not None and len(grouped) < 2:
        grouped = residuals
    count = len(grouped)
    if count < 2:
        return None, count
    return math.sqrt(count / (count - 1) * float(np.sum(grouped**2))) / len(residuals), count


def sums_by_block(values: Floats, blocks: Sequence[int]) -> Floats:
    """The sum of each block's values, in rising order of blocks."""
    if len(values) != len(blocks):
        raise ValueError(f"{len(values)} values, {len(blocks)} blocks for them")
    _, places = np.unique(np.asarray(blocks), return_inverse=True)
    return np.bincount(places, weights=values).astype(np.float64)
