"""Growth over time, with intervals: memory in a soak, latency from hour to hour."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onecat.observe.statistics.records import LEVEL, Estimate
from onecat.observe.statistics.student import t_quantile

_STRETCHES = 24
_LEAST = 4


def slope_interval(times: Sequence[float], values: Sequence[float], level: float = LEVEL) -> Estimate:
    """How fast values grow: in their unit by the unit of times.

    Readings that follow each other resemble each other, so a line through all of them looks far surer than it is. So
    time is cut into 24 stretches (fewer of few readings), the line is laid through the means of stretches, and what
    still resembles its predecessor among the residuals widens the interval by sqrt((1 + r) / (1 - r)), r the first
    autocorrelation (https://en.wikipedia.org/wiki/Effective_sample_size).
    """
    if len(times) != len(values):
        raise ValueError(f"{len(times)} times, {len(values)} values")
    x, y = _stretches(np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64))
    if len(x) < 2 or float(np.ptp(x)) == 0:
        return Estimate(None, level=level, note="growth needs readings at two times at least")
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ (y - y.mean())) / spread
    if len(x) < _LEAST:
        return Estimate(slope, level=level, note=f"not enough readings for an interval: {len(x)} of at least {_LEAST}")
    residuals = y - y.mean() - slope * centred
    degrees = len(x) - 2
    variance = float(residuals @ residuals) / degrees
    error = math.sqrt(variance / spread) * _widening(residuals)
    half = t_quantile(0.5 + level / 2, degrees) * error
    return Estimate(slope, slope - half, slope + half, level)


def _stretches(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of times and values by stretch of time."""
    if len(x) <= _STRETCHES or float(np.ptp(x)) == 0:
        return x, y
    places = np.minimum(((x - x.min()) / np.ptp(x) * _STRETCHES).astype(int), _STRETCHES - 1)
    counts = np.bincount(places, minlength=_STRETCHES)
    some = counts > 0
    sums = (np.bincount(places, weights=each, minlength=_STRETCHES) for each in (x, y))
    means = [total[some] / counts[some] for total in sums]
    return means[0], means[1]


def _widening(residuals: np.ndarray) -> float:
    square = float(residuals @ residuals)
    if square == 0:
        return 1.0
    # The residuals of a line are a little less alike than what they come from: about -2/n where that is independent.
    r = float(residuals[1:] @ residuals[:-1]) / square + 2 / len(residuals)
    r = min(max(r, 0.0), 0.9)
    return math.sqrt((1 + r) / (1 - r))
