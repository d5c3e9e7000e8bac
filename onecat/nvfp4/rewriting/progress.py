"""How far a run has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """done, total: bytes read of the source. seconds: since the run began. module: what it works on.

    reused: bytes of `done` that an earlier run had finished; the speed counts without them. checked: whether it still
    looks at the work of that run, and has not begun with its own.
    """

    done: int
    total: int
    seconds: float
    module: str
    reused: int = 0
    checked: bool = False

    @property
    def speed(self) -> float:
        """Bytes of the source per second in this run."""
        return (self.done - self.reused) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at this speed; None when that cannot be told."""
        return max(self.total - self.done, 0) / self.speed if self.speed > 0 else None


Show = Callable[[Progress], None]
Say = Callable[[str], None]
"""Told one line that a person should know: what is reused, how to go on after a break."""
