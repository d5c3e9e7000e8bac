"""The figures that people ask of latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onecat.observe.statistics.means import mean_interval
from onecat.observe.statistics.percentiles import percentile_interval
from onecat.observe.statistics.records import LEVEL, Estimate


@dataclass(frozen=True)
class Latencies:
    """Times of n requests (or of gaps between tokens), in the unit of the values given. least, most: None of none."""

    n: int
    mean: Estimate
    p50: Estimate
    p90: Estimate
    p95: Estimate
    p99: Estimate
    least: float | None
    most: float | None

    def scaled(self, factor: float) -> Latencies:
        """The same in another unit: seconds with factor 1000 in milliseconds."""
        mean, p50, p90, p95, p99 = (each.scaled(factor) for each in (self.mean, self.p50, self.p90, self.p95, self.p99))
        least, most = (None if each is None else each * factor for each in (self.least, self.most))
        return Latencies(self.n, mean, p50, p90, p95, p99, least, most)


def latencies(values: Sequence[float], blocks: Sequence[int] | None = None, level: float = LEVEL) -> Latencies:
    """Mean and percentiles of values. blocks: for each value, the block it was measured in."""
    p50, p90, p95, p99 = (percentile_interval(values, p, level, blocks) for p in (50, 90, 95, 99))
    mean = _of_times(mean_interval(values, blocks, level))
    least, most = (min(values), max(values)) if len(values) else (None, None)
    return Latencies(len(values), mean, p50, p90, p95, p99, least, most)


def _of_times(mean: Estimate) -> Estimate:
    """No time is below 0; with two or three blocks that differ, t reaches there."""
    return mean if mean.low is None else replace(mean, low=max(0.0, mean.low))
