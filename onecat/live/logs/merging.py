"""Lines of several logs in the order of time. Pure: whoever uses it says what time it is."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from onecat.live.logs.moments import moment_of
from onecat.live.logs.records import Entry, Notice, Source, Told

_BEFORE_ALL = float("-inf")


class Reader:
    """Makes entries of the lines of one log.

    offset_seconds: see `moment_of`.
    """

    def __init__(self, source: Source, offset_seconds: int = 0) -> None:
        self.source = source
        self._offset = offset_seconds
        self._last: float | None = None

    def entry(self, line: str) -> Entry:
        """The next line. One without a time has the time of the line before it, so that it stays behind that."""
        own = moment_of(line, self._offset)
        self._last = self._last if own is None else own
        return Entry(self.source, line, self._last)


class Merger:
    """A buffer that keeps lines for a moment, so that those of another host which were written earlier can come first.

    What is known after a line stays behind it.

    The lines of one source stay in their order, whatever their times say: a clock may be set back.

    hold_seconds: how long a line is kept after it came.
    """

    def __init__(self, hold_seconds: float) -> None:
        self._hold = hold_seconds
        self._heap: list[tuple[float, int, Told]] = []
        self._arrivals: deque[tuple[float, int]] = deque()
        self._waiting: set[int] = set()
        self._keys: dict[Source, float] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Told, now: float) -> None:
        """Take a line that came at `now` (seconds of any clock that does not go back)."""
        own = None if isinstance(entry, Notice) else entry.moment
        key = max(self._keys.get(entry.source, _BEFORE_ALL), _BEFORE_ALL if own is None else own)
        self._keys[entry.source] = key
        heapq.heappush(self._heap, (key, self._next, entry))
        self._arrivals.append((now, self._next))
        self._waiting.add(self._next)
        self._next += 1

    def ready(self, now: float) -> list[Told]:
        """The lines that were kept long enough, and those that were written before them, in the order of time."""
        found = []
        while self._arrivals and self._arrivals[0][0] <= now - self._hold:
            _, number = self._arrivals.popleft()
            while number in self._waiting:
                found.append(self._pop())
        return found

    def rest(self) -> list[Told]:
        """All that are left, in the order of time."""
        found = [self._pop() for _ in range(len(self._heap))]
        self._arrivals.clear()
        return found

    def _pop(self) -> Told:
        _, number, entry = heapq.heappop(self._heap)
        self._waiting.remove(number)
        return entry


def merged(logs: Iterable[Iterable[Told]]) -> list[Told]:
    """What is told of several whole logs in the order of time."""
    merger = Merger(0.0)
    for log in logs:
        for event in log:
            merger.add(event, 0.0)
    return merger.rest()
