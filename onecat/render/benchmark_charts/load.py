"""What more requests at once bring, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onecat.experiments.report import Report, Series, load_curves
from onecat.experiments.summary import Summary
from onecat.observe.statistics import Estimate, Latencies
from onecat.render import benchmark_figures as figures
from onecat.render.benchmark_charts.figure import Figure
from onecat.render.plots import SERIES, Axis, Chart, Dots, Mark, Path, Whiskers, doubling_scale, fitting_scale


@dataclass(frozen=True)
class _Line:
    """One line: a figure of each point. name: for people."""

    name: str
    points: Sequence[Series]
    read: Callable[[Summary], Estimate]

    @property
    def known(self) -> list[tuple[float, Estimate]]:
        found = [(float(each.concurrency or 0), self.read(each.summary)) for each in self.points]
        return [(at, each) for at, each in found if each.value is not None]


def figures_of(report: Report) -> Iterator[Figure]:
    """Throughput and latencies against requests at once; none where there was but one number of them."""
    curves = load_curves(report.series)[:SERIES]
    if not curves:
        return
    throughput = [
        _Line(name if len(curves) > 1 else "", points, lambda each: each.output_rate) for name, points in curves
    ]
    yield _figure("Throughput against requests at once", "output tokens/s", throughput)
    for title, read in _LATENCIES:
        if len(curves) > 1:
            yield _figure(title, "p99, ms", [_Line(name, points, _p99(read)) for name, points in curves])
        else:
            points = curves[0][1]
            yield _figure(title, "ms", [_Line("p50", points, _p50(read)), _Line("p99", points, _p99(read))])


_LATENCIES: tuple[tuple[str, Callable[[Summary], Latencies]], ...] = (
    ("Time to first token against requests at once", lambda each: each.ttft),
    ("End-to-end time against requests at once", lambda each: each.end_to_end),
)


def _figure(title: str, label: str, lines: Sequence[_Line]) -> Figure:
    horizontal = doubling_scale([float(each.concurrency or 0) for line in lines for each in line.points])
    marks: list[Mark] = []
    values: list[float] = []
    told = []
    has_intervals = False
    for place, line in enumerate(lines):
        known = line.known
        path = tuple((at, each.value) for at, each in known if each.value is not None)
        bounds = tuple(
            (at, each.low, each.high) for at, each in known if each.low is not None and each.high is not None
        )
        prefix = f"{line.name}, " if line.name else ""
        names = tuple(f"{prefix}{at:g} at once: {_with_interval(each)}" for at, each in known)
        marks += [Whiskers(bounds, place), Path(path, place, name=line.name), Dots(path, place, names, is_large=True)]
        values += [value for _, value in path] + [value for _, *both in bounds for value in both]
        told.append("; ".join(names))
        has_intervals = has_intervals or bool(bounds)
    vertical = fitting_scale(values, from_zero=True)
    x = Axis("requests at once (logarithmic)" if horizontal.is_logarithmic else "requests at once", horizontal)
    return Figure(
        Chart(title, x, Axis(label, vertical), tuple(marks), "; ".join(told)),
        tuple((place, line.name) for place, line in enumerate(lines)) if len(lines) > 1 else (),
        "Bars: 95 % intervals." if has_intervals else "",
    )


def _p50(read: Callable[[Summary], Latencies]) -> Callable[[Summary], Estimate]:
    return lambda each: read(each).p50.scaled(1000)


def _p99(read: Callable[[Summary], Latencies]) -> Callable[[Summary], Estimate]:
    return lambda each: read(each).p99.scaled(1000)


def _with_interval(found: Estimate) -> str:
    told = figures.cell(found)
    return f"{told.text} ({told.interval})" if told.interval else told.text
