"""How far a long reading has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True)
class Progress:
    """A moment of a reading. done, total: bytes; seconds: since it began."""

    what: str
    done: int
    total: int
    seconds: float

    @property
    def speed(self) -> float:
        """Bytes a second so far."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Until it ends at this speed, None when that cannot be said yet."""
        return (self.total - self.done) / self.speed if self.speed > 0 and self.seconds > 1 else None


Show = Callable[[Progress], None]


class Counter:
    """Adds up what several threads have read, and shows it."""

    def __init__(self, what: str, total: int, show: Show, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._total, self._show, self._clock = what, total, show, clock
        self._begin = clock()
        self._done = 0
        self._lock = Lock()

    def add(self, count: int) -> None:
        """Tell that so many bytes more were read; may be called from any thread."""
        with self._lock:
            self._done += count
            self._show(self.now())

    def now(self) -> Progress:
        """Where it stands."""
        return Progress(self._what, self._done, self._total, self._clock() - self._begin)
