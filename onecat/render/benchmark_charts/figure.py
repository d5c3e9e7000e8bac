"""A chart with its surroundings, and the words that several kinds of charts use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onecat.experiments.report import Report, Series, drawn
from onecat.render.plots import SERIES, Chart, Scale

_SECONDS_FROM = 100.0


@dataclass(frozen=True)
class Figure:
    """A chart with what stands under it. legend: (series, its name), empty where there is only one."""

    chart: Chart
    legend: tuple[tuple[int, str], ...] = ()
    note: str = ""


def unit_for(seconds: float) -> tuple[str, float]:
    """The unit for times up to `seconds`, and how many of it make a second."""
    return ("s", 1.0) if seconds >= _SECONDS_FROM else ("ms", 1000.0)


def axis_label(unit: str, scale: Scale, what: str = "") -> str:
    """`end to end, ms (logarithmic)`."""
    label = f"{what}, {unit}" if what else unit
    return f"{label} (logarithmic)" if scale.is_logarithmic else label


def legend(shown: Sequence[Series]) -> tuple[tuple[int, str], ...]:
    """Names of series; none where there is only one."""
    return tuple((place, each.label) for place, each in enumerate(shown)) if len(shown) > 1 else ()


def left_out(report: Report) -> str:
    """What a note says where not all series are drawn; it begins with a space."""
    number, shown = len(report.series), len(drawn(report, SERIES))
    return f" {shown} of {number} are drawn; all are in the tables." if shown < number else ""
