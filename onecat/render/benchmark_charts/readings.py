"""What the server told of itself on the way."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.experiments.report import READINGS, Report, sampled
from onecat.render import benchmark_figures as figures
from onecat.render.benchmark_charts.figure import Figure
from onecat.render.plots import SERIES, Axis, Chart, Path, fitting_scale, linear_scale, time_scale

_Points = tuple[tuple[float, float], ...]
_SHARES = linear_scale(0, 100)


def figures_of(report: Report) -> Iterator[Figure]:
    """A chart for each kind of reading that samples have."""
    for title in dict.fromkeys(each.chart for each in READINGS):
        lines = list(_lines(report, title))[:SERIES]
        if lines:
            yield _figure(title, lines)


def _lines(report: Report, title: str) -> Iterator[tuple[str, _Points]]:
    """Lines with their names. One that is the same as the one before it, as with one GPU, is left out, and one that is
    zero throughout."""
    for run in report.runs:
        before: _Points = ()
        for each in READINGS:
            points = sampled(run.experiment, each.read) if each.chart == title else ()
            if len(points) > 1 and points != before and any(value for _, value in points):
                yield f"{run.name} {each.name}" if len(report.runs) > 1 else each.name, points
                before = points


def _figure(title: str, lines: list[tuple[str, _Points]]) -> Figure:
    horizontal = time_scale(max(points[-1][0] for _, points in lines))
    values = [value for _, points in lines for _, value in points]
    is_share = "%" in title and max(values) <= 100
    vertical = _SHARES if is_share else fitting_scale(values, from_zero=True)
    told = (f"{name}: at most {figures.figure(max(value for _, value in points))}" for name, points in lines)
    return Figure(
        Chart(
            title,
            Axis(f"time, {horizontal.unit}", horizontal),
            Axis("", vertical),
            tuple(Path(points, place, is_stepped=True, name=name) for place, (name, points) in enumerate(lines)),
            "; ".join(told),
        ),
        tuple((place, name) for place, (name, _) in enumerate(lines)) if len(lines) > 1 else (),
    )
