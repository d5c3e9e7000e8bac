"""Scales: where a value lies on an axis, and at which values the axis has ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_WIDE = 30.0
"""A range whose ends differ by more than this factor is shown on a logarithmic axis."""
_TIME_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30)
_TIME_UNITS = ((1, "s", 180.0), (60, "min", 3 * 3600.0), (3600, "h", 4 * 86400.0), (86400, "days", math.inf))
"""Seconds of a unit, its name, and up to which span it is used."""


@dataclass(frozen=True)
class Scale:
    """A range of values. ticks: (value, text), all in the range. unit: of the texts, where the scale chose it."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    is_logarithmic: bool = False
    unit: str = ""

    def position(self, value: float) -> float:
        """0 at the low end and 1 at the high one; values outside lie at the nearer end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)


_NOTHING = 1e-300
"""Less is zero: a step of it has no digits that could be written."""


def linear_scale(low: float, high: float, wanted: int = 5) -> Scale:
    """A scale from a half step at or below `low` to one at or above `high`, with about so many round ticks."""
    if max(abs(low), abs(high)) < _NOTHING:
        low, high = 0.0, 1.0
    elif high <= low:
        low, high = (low - abs(low) / 2, low + abs(low) / 2) if low else (0.0, 1.0)
    step = _round_step((high - low) / wanted)
    half = step / 2
    start, end = math.floor(low / half + 1e-9) * half, math.ceil(high / half - 1e-9) * half
    first, last = math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    values = [round(number * step, digits) for number in range(first, last + 1)]
    return Scale(start, end, tuple((value, _number(value, digits)) for value in values))


def logarithmic_scale(low: float, high: float, wanted: int = 6) -> Scale:
    """A scale from a round number at or below `low` to one at or above `high`; both must be more than 0."""
    if not 0 < low <= high:
        raise ValueError(f"no logarithmic scale from {low} to {high}")
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    fine = [10.0**power * step for power in range(first, last + 1) for step in (1, 2, 5)]
    start = max(value for value in fine if value <= low * (1 + 1e-9))
    end = min((value for value in fine if value >= high * (1 - 1e-9)), default=10.0**last)
    if end <= start:
        end = min(value for value in [*fine, 10.0 ** (last + 1)] if value > start)
    inside = [value for value in fine if start <= value <= end]
    for steps in ((1, 2, 5), (1, 3), (1,)):
        values = inside if steps == (1, 2, 5) else [v for v in _decades(first, last, steps) if start <= v <= end]
        if len(values) <= wanted + 1:
            break
    else:
        values = values[:: math.ceil(len(values) / wanted)]
    return Scale(start, end, tuple((value, _short(value)) for value in values), is_logarithmic=True)


def fitting_scale(values: Iterable[float], *, from_zero: bool = False, wanted: int = 5) -> Scale:
    """A scale for values that are seen once: logarithmic where they spread over more than a factor of 30."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return linear_scale(0, 1, wanted)
    low, high = min(known), max(known)
    if low > 0 and high / low > _WIDE and not from_zero:
        return logarithmic_scale(low, high, wanted + 1)
    return linear_scale(min(0.0, low) if from_zero or low < (high - low) else low, high, wanted)


def doubling_scale(values: Sequence[float]) -> Scale:
    """A logarithmic scale with ticks at the values themselves, as for 1, 2, 4, 8 requests at once; each more than 0."""
    ordered = sorted(set(values))
    low, high = ordered[0], ordered[-1]
    if high / low < 4:
        return Scale(0.0, high, ((0.0, "0"), *((value, _short(value)) for value in ordered)))
    ticks: list[tuple[float, str]] = []
    last = 0.0
    for value in ordered:
        place = math.log(value / low) / math.log(high / low)
        if not ticks or place - last > 0.06:
            ticks.append((value, _short(value)))
            last = place
    return Scale(low, high, tuple(ticks), is_logarithmic=True)


def time_scale(seconds: float, wanted: int = 6) -> Scale:
    """From 0 to a round time at or after `seconds`, in a unit that people use for it."""
    most = max(seconds, 0.1)
    size, unit = next((size, unit) for size, unit, limit in _TIME_UNITS if most <= limit)
    rough = most / size / wanted
    steps = _TIME_STEPS if unit in ("s", "min") else (0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 96, 192)
    step = next((each for each in steps if each >= rough), _round_step(rough))
    count = math.ceil(most / size / step - 1e-9)
    digits = 0 if step >= 1 else 2 if step == 0.25 else 1
    ticks = tuple((number * step * size, _number(number * step, digits)) for number in range(count + 1))
    return Scale(0.0, ticks[-1][0], ticks, unit=unit)


def _decades(first: int, last: int, steps: Sequence[int]) -> list[float]:
    return [10.0**power * step for power in range(first, last + 1) for step in steps]


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not far below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.75)


def _number(value: float, digits: int) -> str:
    if digits == 0 and abs(value) >= 10_000:
        return _short(value)
    return f"{value + 0.0:.{digits}f}"


def _short(value: float) -> str:
    """`0.05`, `20`, `5000`, `20k`, `1M`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size and (size > 1e3 or value >= 1e4):
            return f"{value / size:g}{letter}"
    return f"{value:.6g}"
