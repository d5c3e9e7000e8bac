"""A chart with two axes and marks in it, as SVG.

Sizes are in units of the view box; the page scales the whole, so a chart is as legible on a telephone as on a wide
screen when it is drawn for a narrow one. Colours, dashes and fonts are classes of the page's style sheet
(templates/benchmarks/report.css): `s0` to `s5` for series, which differ in their dashes too, for those who do not see
the colours and for paper.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onecat.render.plots.markup import tag, text, void_tag
from onecat.render.plots.scales import Scale

SERIES = 6
"""How many series can be told apart; more than so many are not drawn in one chart."""

WIDTH, HEIGHT = 480, 300
_NAMESPACE = "http://www.w3.org/2000/svg"
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 20, 30, 46


@dataclass(frozen=True)
class Axis:
    """label: with the unit."""

    label: str
    scale: Scale


@dataclass(frozen=True)
class Path:
    """A line through points, in the order given. is_stepped: it keeps its height up to the next point."""

    points: tuple[tuple[float, float], ...]
    series: int = 0
    is_stepped: bool = False
    name: str = ""


@dataclass(frozen=True)
class Area:
    """What lies between the two heights of each (x, low, high)."""

    points: tuple[tuple[float, float, float], ...]
    series: int = 0


@dataclass(frozen=True)
class Dots:
    """Points. names: what the pointer is told of each, or none. weight: 0 faint to 2 strong, 3 strong
    and larger. is_large: a mark each."""

    points: tuple[tuple[float, float], ...]
    series: int = 0
    names: tuple[str, ...] = ()
    weight: int = 1
    is_large: bool = False


@dataclass(frozen=True)
class Whiskers:
    """Intervals: (x, low, high). is_lying: (y, low, high) instead."""

    points: tuple[tuple[float, float, float], ...]
    series: int = 0
    is_lying: bool = False


@dataclass(frozen=True)
class Crosses:
    """What failed, at the upper edge. names: what the pointer is told of each."""

    places: tuple[float, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """A line across the chart. value: on the vertical axis, or the horizontal where is_upright."""

    value: float
    label: str
    is_upright: bool = False


Mark = Path | Area | Dots | Whiskers | Crosses | Rule


@dataclass(frozen=True)
class Chart:
    """title: shown. description: for those who cannot see it."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    description: str = ""
    height: int = HEIGHT


def chart_svg(chart: Chart) -> str:
    """The chart as one `<svg>` element."""
    frame = _Frame(chart.x.scale, chart.y.scale, chart.height)
    # Ids must be unique in the page, and the same for the same chart.
    mark = hashlib.sha256(f"{chart.title} {chart.description} {chart.marks!r}".encode()).hexdigest()[:10]
    return tag(
        "svg",
        tag("title", text(chart.title), id=f"t{mark}"),
        tag("desc", text(chart.description), id=f"d{mark}"),
        tag("text", text(chart.title), class_="title", x=4, y=17),
        *_axes(chart, frame),
        *(piece for each in chart.marks for piece in _drawn(each, frame)),
        xmlns=_NAMESPACE,
        viewBox=f"0 0 {WIDTH} {chart.height}",
        role="img",
        aria_labelledby=f"t{mark} d{mark}",
        class_="chart",
    )


def swatch_svg(series: int) -> str:
    """A short line as a series is drawn, for a legend."""
    line = void_tag("path", d="M2 6H26", class_=f"line s{series % SERIES}")
    return tag(
        "svg", line, xmlns="http://www.w3.org/2000/svg", viewBox="0 0 28 12", class_="swatch", aria_hidden="true"
    )


@dataclass(frozen=True)
class _Frame:
    """Where values lie in the view box."""

    horizontal: Scale
    vertical: Scale
    height: int

    @property
    def left(self) -> float:
        return _LEFT

    @property
    def right(self) -> float:
        return WIDTH - _RIGHT

    @property
    def top(self) -> float:
        return _TOP

    @property
    def bottom(self) -> float:
        return self.height - _BOTTOM

    def x(self, value: float) -> float:
        return self.left + self.horizontal.position(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - self.vertical.position(value) * (self.bottom - self.top)


def _axes(chart: Chart, frame: _Frame) -> Iterator[str]:
    lines, labels = [], []
    for value, shown in chart.y.scale.ticks:
        at = frame.y(value)
        lines.append(f"M{_n(frame.left)} {_n(at)}H{_n(frame.right)}")
        labels.append(tag("text", text(shown), x=_n(frame.left - 6), y=_n(at + 4), class_="tick end"))
    for value, shown in chart.x.scale.ticks:
        at = frame.x(value)
        lines.append(f"M{_n(at)} {_n(frame.bottom)}v4")
        labels.append(tag("text", text(shown), x=_n(at), y=_n(frame.bottom + 17), class_="tick middle"))
    yield void_tag("path", d="".join(lines), class_="grid")
    yield void_tag("path", d=f"M{_n(frame.left)} {_n(frame.bottom)}H{_n(frame.right)}", class_="axis")
    yield from labels
    middle = _n((frame.left + frame.right) / 2)
    yield tag("text", text(chart.x.label), x=middle, y=chart.height - 8, class_="label middle")
    if chart.y.label:
        upright = _n((frame.top + frame.bottom) / 2)
        where = f"translate(13 {upright}) rotate(-90)"
        yield tag("text", text(chart.y.label), transform=where, class_="label middle")


def _drawn(mark: Mark, frame: _Frame) -> Iterator[str]:
    if isinstance(mark, Path):
        if mark.points:
            name = tag("title", text(mark.name)) if mark.name else ""
            yield tag("path", name, d=_line(mark, frame), class_=f"line {_class(mark.series)}")
    elif isinstance(mark, Area):
        there = [f"{_n(frame.x(x))} {_n(frame.y(high))}" for x, _, high in mark.points]
        back = [f"{_n(frame.x(x))} {_n(frame.y(low))}" for x, low, _ in reversed(mark.points)]
        if there:
            yield void_tag("path", d=f"M{'L'.join([*there, *back])}Z", class_=f"area {_class(mark.series)}")
    elif isinstance(mark, Dots):
        yield from _dots(mark, frame)
    elif isinstance(mark, Whiskers):
        yield from _whiskers(mark, frame)
    elif isinstance(mark, Crosses):
        for place, name in zip(mark.places, mark.names, strict=True):
            at = f"M{_n(frame.x(place) - 3.5)} {_n(frame.top - 3.5)}l7 7m0 -7l-7 7"
            yield tag("path", tag("title", text(name)), d=at, class_="cross")
    else:
        yield from _rule(mark, frame)


def _line(mark: Path, frame: _Frame) -> str:
    """Points that fall on the same place are left out."""
    first = mark.points[0]
    x, y = _n(frame.x(first[0])), _n(frame.y(first[1]))
    drawn = [f"M{x} {y}"]
    for point in mark.points[1:]:
        at = (_n(frame.x(point[0])), _n(frame.y(point[1])))
        if at == (x, y):
            continue
        if not mark.is_stepped:
            drawn.append(f"L{at[0]} {at[1]}")
        else:
            drawn.append((f"H{at[0]}" if at[0] != x else "") + (f"V{at[1]}" if at[1] != y else ""))
        x, y = at
    return "".join(drawn)


def _dots(mark: Dots, frame: _Frame) -> Iterator[str]:
    look = f"{'mark' if mark.is_large else 'dots'} w{mark.weight} {_class(mark.series)}"
    if mark.names:
        for (x, y), name in zip(mark.points, mark.names, strict=True):
            at = f"M{_n(frame.x(x))} {_n(frame.y(y))}h0"
            yield tag("path", tag("title", text(name)), d=at, class_=look)
        return
    # One path for all: a line of no length with round ends is a dot, in ten bytes.
    places = dict.fromkeys((_n(frame.x(x)), _n(frame.y(y))) for x, y in mark.points)
    if places:
        yield void_tag("path", d="".join(f"M{x} {y}h0" for x, y in places), class_=look)


def _whiskers(mark: Whiskers, frame: _Frame) -> Iterator[str]:
    drawn = []
    for at, low, high in mark.points:
        if mark.is_lying:
            y, left, right = frame.y(at), _n(frame.x(low)), _n(frame.x(high))
            drawn.append(f"M{left} {_n(y)}H{right}M{left} {_n(y - 4)}v8M{right} {_n(y - 4)}v8")
        else:
            x, bottom, top = frame.x(at), _n(frame.y(low)), _n(frame.y(high))
            drawn.append(f"M{_n(x)} {bottom}V{top}M{_n(x - 4)} {bottom}h8M{_n(x - 4)} {top}h8")
    if drawn:
        yield void_tag("path", d="".join(drawn), class_=f"whisker {_class(mark.series)}")


def _rule(mark: Rule, frame: _Frame) -> Iterator[str]:
    if mark.is_upright:
        at = _n(frame.x(mark.value))
        yield void_tag("path", d=f"M{at} {_n(frame.top)}V{_n(frame.bottom)}", class_="rule")
        is_right = frame.horizontal.position(mark.value) > 0.6
        place = frame.x(mark.value) + (-4 if is_right else 4)
        look = "tick end" if is_right else "tick"
        yield tag("text", text(mark.label), x=_n(place), y=_n(frame.bottom - 7), class_=look)
    else:
        at = _n(frame.y(mark.value))
        yield void_tag("path", d=f"M{_n(frame.left)} {at}H{_n(frame.right)}", class_="rule")
        yield tag("text", text(mark.label), x=_n(frame.right), y=_n(frame.y(mark.value) - 4), class_="tick end")


def _class(series: int) -> str:
    return f"s{series % SERIES}"


def _n(value: float) -> str:
    """A coordinate to a tenth: finer than anybody sees, and short."""
    return f"{round(value, 1) + 0.0:g}"


def placed(points: Iterable[tuple[float, float]], chart: Chart) -> Sequence[tuple[float, float]]:
    """Where points lie in the chart's view box, as they are drawn."""
    frame = _Frame(chart.x.scale, chart.y.scale, chart.height)
    return [(float(_n(frame.x(x))), float(_n(frame.y(y)))) for x, y in points]
