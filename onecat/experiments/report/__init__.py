"""Report: result files as what is told of them, in whatever form. Pure.

In: experiments that were read back. Out: a `Report`: series of alike blocks with their summaries, and what differs
between the runs; curves for plots, thinned so that a hundred thousand requests stay small.
"""

from onecat.experiments.report.curves import (
    Cell,
    Errors,
    cumulative,
    errors_over_time,
    moment,
    over_time,
    sampled,
    since_start,
)
from onecat.experiments.report.readings import READINGS, Reading
from onecat.experiments.report.series import Report, Run, Series, alike_in_first, drawn, load_curves, make_report

__all__ = [
    "READINGS",
    "Cell",
    "Errors",
    "Reading",
    "Report",
    "Run",
    "Series",
    "alike_in_first",
    "cumulative",
    "drawn",
    "errors_over_time",
    "load_curves",
    "make_report",
    "moment",
    "over_time",
    "sampled",
    "since_start",
]
