"""Curves of what was measured, with as many points as a plot can show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onecat.experiments.records import Block, Experiment, Request


@dataclass(frozen=True)
class Cell:
    """Requests that lie so near to one another that a plot shows them in one place. at: seconds since the start."""

    at: float
    value: float
    requests: int


@dataclass(frozen=True)
class Errors:
    """Requests that failed about the same time, all with the same kind of error. at: seconds since the start."""

    at: float
    kind: str
    requests: int


def cumulative(values: Iterable[float], points: int = 200) -> tuple[tuple[float, float], ...]:
    """The distribution of values: (value, share of values up to it), from share 0 to 1.

    Of many, `points` are kept: evenly spread ranks, with the uppermost hundredth as dense as the rest, for that is
    where slow requests are.
    """
    ordered = sorted(values)
    number = len(ordered)
    if not number:
        return ()
    if number <= points:
        ranks: Sequence[int] = range(1, number + 1)
    else:
        half = points // 2
        even = {round(number * each / half) for each in range(1, half + 1)}
        tail = {round(number * (0.99 + 0.01 * each / half)) for each in range(half + 1)}
        ranks = sorted(rank for rank in {1, *even, *tail} if 1 <= rank <= number)
    return ((ordered[0], 0.0), *((ordered[rank - 1], rank / number) for rank in ranks))


def since_start(experiment: Experiment, blocks: Sequence[Block]) -> tuple[tuple[float, Request], ...]:
    """Requests of blocks with when they were sent, in seconds since the experiment's start.

    Raises ValueError when a time is none.
    """
    begin = moment(experiment.started_at)
    return tuple((moment(block.started_at) - begin + each.start, each) for block in blocks for each in block.requests)


def over_time(sent: Sequence[tuple[float, Request]], columns: int, places: int, most: int = 2000) -> tuple[Cell, ...]:
    """Latency over time: for each request that was answered, when it was sent and how long it took to the last token.

    Of more than `most` requests those are put together that lie in the same of columns x places cells (places: of the
    logarithm); a cell is where its slowest request is, so the slowest of all keep their place.
    """
    answered = [(at, each.end_to_end) for at, each in sent if each.error is None]
    if len(answered) <= most:
        return tuple(Cell(at, value, 1) for at, value in answered)
    first, last = min(at for at, _ in answered), max(at for at, _ in answered)
    low, high = _logarithm(min(value for _, value in answered)), _logarithm(max(value for _, value in answered))
    width, height = (last - first) / columns or 1.0, (high - low) / places or 1.0
    slowest: dict[tuple[int, int], tuple[float, float]] = {}
    counted: Counter[tuple[int, int]] = Counter()
    for at, value in answered:
        cell = (int((at - first) / width), int((_logarithm(value) - low) / height))
        counted[cell] += 1
        if cell not in slowest or value > slowest[cell][1]:
            slowest[cell] = (at, value)
    return tuple(Cell(*slowest[cell], counted[cell]) for cell in sorted(slowest))


def errors_over_time(sent: Sequence[tuple[float, Request]], columns: int) -> tuple[Errors, ...]:
    """Requests that failed, those of a kind put together that were sent in the same of so many columns."""
    failed = [(at, each.error) for at, each in sent if each.error is not None]
    if not failed:
        return ()
    first, last = min(at for at, _ in sent), max(at for at, _ in sent)
    width = (last - first) / columns or 1.0
    counted: Counter[tuple[int, str]] = Counter((int((at - first) / width), kind) for at, kind in failed)
    return tuple(Errors(first + (place + 0.5) * width, kind, number) for (place, kind), number in counted.items())


def sampled(
    experiment: Experiment, read: Callable[[Mapping[str, Any]], float | None], points: int = 300
) -> tuple[tuple[float, float], ...]:
    """A reading of the server over time: (seconds since the start, value) for each sample that has it.

    Of more samples than `points`, those next to one another are put together, and the highest is kept.
    """
    begin = moment(experiment.started_at)
    found = []
    for sample in experiment.samples:
        at, value = _time(sample.get("time")), read(sample)
        if value is not None and at is not None:
            found.append((at - begin, value))
    return _thinned(found, points)


def moment(text: str) -> float:
    """Seconds since the epoch of a time in RFC 3339. Raises ValueError."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _time(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return moment(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None


def _logarithm(value: float) -> float:
    return math.log(max(value, 1e-6))


def _thinned(read: Sequence[tuple[float, float]], points: int) -> tuple[tuple[float, float], ...]:
    if len(read) <= points:
        return tuple(read)
    size = len(read) / points
    pieces = (read[int(each * size) : int((each + 1) * size)] for each in range(points))
    return tuple(max(piece, key=lambda each: each[1]) for piece in pieces if piece)
