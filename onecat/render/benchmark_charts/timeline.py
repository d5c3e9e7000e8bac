"""Each request at the time when it was sent."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.experiments.report import Cell, Report, drawn, errors_over_time, over_time, since_start
from onecat.render import benchmark_figures as figures
from onecat.render.benchmark_charts.figure import Figure, axis_label, left_out, legend, unit_for
from onecat.render.plots import SERIES, Axis, Chart, Crosses, Dots, Mark, fitting_scale, time_scale

_COLUMNS, _PLACES = 137, 75
"""Places for dots: each is three units of the view box wide and high."""
_SEVERAL, _MANY = 3, 10
_FEW = 300
_TOGETHER = "Each dot is one request, or several near to one another (the stronger, the more); none is left out."


def figures_of(report: Report) -> Iterator[Figure]:
    """One chart of all series; of several runs, each from its own start."""
    shown = drawn(report, SERIES)
    sent = [since_start(report.runs[each.run].experiment, each.blocks) for each in shown]
    cells = [over_time(each, _COLUMNS, _PLACES) for each in sent]
    if not any(cells):
        return
    span = max(at for each in sent for at, _ in each)
    slowest = max(cell.value for each in cells for cell in each)
    unit, factor = unit_for(slowest)
    vertical = fitting_scale([cell.value * factor for each in cells for cell in each])
    horizontal = time_scale(span)
    requests = sum(map(len, sent))
    failed = sum(each.error is not None for of_series in sent for _, each in of_series)
    is_thinned = sum(map(len, cells)) < requests - failed
    marks = [mark for place, each in enumerate(cells) for mark in _dots(each, place, factor, is_thinned)]
    errors = [
        (error.at, f"{series.label}: {error.requests} {error.kind}")
        for series, each in zip(shown, sent, strict=True)
        for error in errors_over_time(each, _COLUMNS)
    ]
    if errors:
        marks.append(Crosses(tuple(at for at, _ in errors), tuple(name for _, name in errors)))
    notes = [_TOGETHER if is_thinned else "Each dot is a request.", "Crosses: requests that failed." if failed else ""]
    told = (
        f"{requests} requests in {figures.duration_text(span)}, {failed} failed; "
        f"the slowest took {figures.figure(slowest * factor)} {unit}"
    )
    yield Figure(
        Chart(
            "Requests over time",
            Axis(f"sent after, {horizontal.unit}", horizontal),
            Axis(axis_label(unit, vertical, "end to end"), vertical),
            tuple(marks),
            told,
        ),
        legend(shown),
        " ".join(filter(None, notes)) + left_out(report),
    )


def _dots(cells: tuple[Cell, ...], series: int, factor: float, is_thinned: bool) -> Iterator[Mark]:
    """Cells with few, several and many requests; where each is one request, they are all drawn alike."""
    if not is_thinned:
        points = tuple((each.at, each.value * factor) for each in cells)
        yield Dots(points, series, weight=3 if len(points) <= _FEW else 1)
        return
    for weight, (least, most) in enumerate(((1, _SEVERAL), (_SEVERAL, _MANY), (_MANY, 1 << 60))):
        points = tuple((each.at, each.value * factor) for each in cells if least <= each.requests < most)
        if points:
            yield Dots(points, series, weight=weight)
