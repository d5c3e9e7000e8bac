"""How much B differs from A, pair of blocks by pair of blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from onecat.experiments.ab import pairs_of
from onecat.experiments.report import Report, Run
from onecat.experiments.speed import METRICS, Metric
from onecat.observe.statistics import log_ratio
from onecat.render import benchmark_figures as figures
from onecat.render.benchmark_charts.figure import Figure
from onecat.render.plots import Area, Axis, Chart, Dots, Mark, Rule, Scale, linear_scale


def figures_of(report: Report) -> Iterator[Figure]:
    """A chart for each comparison of A with B."""
    for run in report.runs:
        verdict = figures.paired_verdict(run.experiment)
        metric = METRICS.get(str(verdict.get("metric")))
        if metric is not None:
            points = tuple(_points(run, metric))
            if points:
                of_run = f", {run.name}" if len(report.runs) > 1 else ""
                yield _figure(f"B compared with A{of_run}", points, metric, verdict)


def _points(run: Run, metric: Metric) -> Iterator[tuple[float, float]]:
    """The number of each pair, and by how many percent B was faster in it."""
    better = 1 if metric.higher_is_better else -1
    for number, pair in enumerate(pairs_of(run.experiment.blocks), 1):
        ratio = log_ratio(metric.values(pair.a), metric.values(pair.b))
        if ratio is not None:
            yield float(number), better * math.expm1(ratio) * 100


def _figure(title: str, points: tuple[tuple[float, float], ...], metric: Metric, verdict: Mapping[str, Any]) -> Figure:
    bounds = [value for name in ("low", "high") if isinstance(value := verdict.get(f"faster_{name}_percent"), float)]
    heights = [0.0, *(height for _, height in points), *bounds]
    vertical = linear_scale(min(heights), max(heights))
    last = points[-1][0]
    step = max(1, round(last / 8))
    ticks = tuple((float(number), str(number)) for number in range(step, int(last) + 1, step))
    horizontal = Scale(0.5, last + 0.5, ticks)
    marks: list[Mark] = []
    if len(bounds) == 2:
        low, high = sorted(bounds)
        marks.append(Area(((horizontal.low, low, high), (horizontal.high, low, high))))
    names = tuple(f"pair {number:g}: {figures.percent(value)}" for number, value in points)
    marks += [Rule(0.0, "no difference"), Dots(points, 0, names, is_large=True)]
    return Figure(
        Chart(
            title,
            Axis("pair of blocks", horizontal),
            Axis("B is faster by, %", vertical),
            tuple(marks),
            str(verdict.get("sentence", "")),
        ),
        note=f"By {metric.title}, in each pair." + (" Shaded: the 95 % interval." if len(bounds) == 2 else ""),
    )
