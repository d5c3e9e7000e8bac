"""How far a run has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from onecat.nvfp4.rewriting.records import StepReport


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


class Count:
    """Counts the bytes of the source that are done, and shows them. reused: those of an earlier run."""

    def __init__(self, total: int, began: float, show: Show) -> None:
        self._total, self._began, self._show = total, began, show
        self.done = self.reused = 0

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began

    def add(self, count: int, module: str) -> None:
        """So many bytes of a module are done."""
        self.done += count
        self._show(Progress(self.done, self._total, self.seconds, module, self.reused))

    def reuse(self, report: StepReport) -> None:
        """A step that an earlier run has done was found right."""
        self.done += report.bytes_read
        self.reused += report.bytes_read
        self._show(Progress(self.done, self._total, self.seconds, report.module, self.reused, checked=True))

    def forget(self, reports: list[StepReport]) -> None:
        """Steps that were found right are done anew all the same."""
        count = sum(each.bytes_read for each in reports)
        self.done -= count
        self.reused -= count
