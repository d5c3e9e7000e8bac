"""The charts of a report: which there are, and what they show. A kind of chart is a module, and a row of KINDS.

In: a `Report`. Out: `Figure`s: charts with their legends and what is said under them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onecat.experiments.report import Report
from onecat.render.benchmark_charts import distributions, load, pairs, readings, timeline
from onecat.render.benchmark_charts.figure import Figure

__all__ = ["Figure", "report_figures"]

KINDS: tuple[Callable[[Report], Iterator[Figure]], ...] = (
    pairs.figures_of,
    load.figures_of,
    distributions.figures_of,
    timeline.figures_of,
    readings.figures_of,
)
"""In the order of the page. Each yields the charts that the measurements are enough for."""


def report_figures(report: Report) -> Iterator[Figure]:
    """All charts of a report."""
    for kind in KINDS:
        yield from kind(report)
