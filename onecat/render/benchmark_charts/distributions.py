"""Distributions of latencies: which share of the requests took at most so long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onecat.experiments.records import Objectives, Request
from onecat.experiments.report import Report, Series, cumulative, drawn
from onecat.render import benchmark_figures as figures
from onecat.render.benchmark_charts.figure import Figure, axis_label, left_out, legend, unit_for
from onecat.render.plots import SERIES, Axis, Chart, Dots, Mark, Path, Rule, fitting_scale, linear_scale

Curve = tuple[tuple[float, float], ...]
"""(time in the chart's unit, share in percent), rising."""

_MARKED = (50, 90, 99)
_SMOOTH_FROM = 60
"""Points from which the steps of a distribution are smaller than its line is wide."""
_WIDEST = 10_000
"""An axis has at most so many times its least value; what is less is drawn at its begin."""
_SHARES = linear_scale(0, 100)


@dataclass(frozen=True)
class Distribution:
    """title: of the chart. what: is counted. times: of a request, in seconds. limit: of the objectives, in ms."""

    title: str
    what: str
    times: Callable[[Request], Sequence[float]]
    limit: Callable[[Objectives], float | None]


DISTRIBUTIONS = (
    Distribution(
        "Time to first token",
        "requests",
        lambda each: () if each.ttft is None else (each.ttft,),
        lambda objectives: objectives.ttft_ms,
    ),
    Distribution(
        "End-to-end time", "requests", lambda each: (each.end_to_end,), lambda objectives: objectives.end_to_end_ms
    ),
    Distribution("Time between chunks of tokens", "gaps", lambda each: each.inter_token, lambda objectives: None),
)


def figures_of(report: Report) -> Iterator[Figure]:
    """A chart for each latency that was measured."""
    shown = drawn(report, SERIES)
    for each in DISTRIBUTIONS:
        curves = {place: _curve(series, each) for place, series in enumerate(shown)}
        if any(curves.values()):
            unit, factor = unit_for(max(curve[-1][0] for curve in curves.values() if curve))
            scaled = {
                place: tuple((value * factor, share * 100) for value, share in curve)
                for place, curve in curves.items()
                if curve
            }
            objectives = {run.experiment.objectives for run in report.runs}
            limit = each.limit(objectives.pop()) if len(objectives) == 1 else None
            note = (
                f"At each time, the % of the {each.what} that took at most that long. Dots: p50, p90, p99."
                f"{left_out(report)}"
            )
            yield Figure(_chart(each, shown, scaled, unit, limit), legend(shown), note)


def _chart(
    kind: Distribution, shown: Sequence[Series], curves: dict[int, Curve], unit: str, limit: float | None
) -> Chart:
    ends = [value for curve in curves.values() for value in (curve[0][0], curve[-1][0])]
    # Chunks that arrive together have gaps of microseconds: decades of the axis with nothing in them.
    scale = fitting_scale(max(value, max(ends) / _WIDEST) for value in ends)
    marks: list[Mark] = []
    for place, curve in curves.items():
        marks.append(Path(curve, place, is_stepped=len(curve) < _SMOOTH_FROM, name=shown[place].label))
    for place, curve in curves.items():
        points = tuple((at_share(curve, share), float(share)) for share in _MARKED)
        names = tuple(f"{shown[place].label}: p{share:g} {figures.figure(value)} {unit}" for value, share in points)
        marks.append(Dots(points, place, names, is_large=True))
    if limit is not None:
        value = limit if unit == "ms" else limit / 1000
        if scale.low <= value <= scale.high:
            marks.append(Rule(value, f"objective {limit:g} ms", is_upright=True))
    told = "; ".join(_told(shown[place].label, curve, unit) for place, curve in curves.items())
    return Chart(
        kind.title, Axis(axis_label(unit, scale), scale), Axis(f"% of {kind.what}", _SHARES), tuple(marks), told
    )


def at_share(curve: Curve, share: float) -> float:
    """The smallest value up to which so many percent lie."""
    return next(value for value, up_to in curve if up_to >= share - 1e-9)


def _curve(series: Series, kind: Distribution) -> Curve:
    answered = (each for block in series.blocks for each in block.requests if each.error is None)
    return cumulative(value for each in answered for value in kind.times(each))


def _told(label: str, curve: Curve, unit: str) -> str:
    """A distribution in words, for those who cannot see it."""
    p50, p90, p99 = (figures.figure(at_share(curve, share)) for share in _MARKED)
    return f"{label}: half took at most {p50} {unit}, 90 % {p90} {unit}, 99 % {p99} {unit}"
