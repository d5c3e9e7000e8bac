"""What an estimate is."""

from __future__ import annotations

from dataclasses import dataclass

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """One figure and how well it is known.

    value: None where there was nothing to measure. low, high: the interval's bounds, both or neither. level: how often
    intervals made so hold the true value. note: why there is no interval, for people; empty where there is one.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float = LEVEL
    note: str = ""

    @property
    def has_interval(self) -> bool:
        return self.low is not None and self.high is not None

    def scaled(self, factor: float) -> Estimate:
        """The same in another unit: seconds with factor 1000 in milliseconds. factor: more than 0."""
        value, low, high = (None if each is None else each * factor for each in (self.value, self.low, self.high))
        return Estimate(value, low, high, self.level, self.note)
