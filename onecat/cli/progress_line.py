"""Progress on standard error: one line that is drawn again and again on a terminal, else a line now and then."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType

from onecat.cli import console
from onecat.render.columns import clip

LINE_SECONDS = 5.0
"""Between two lines of progress where no person watches a terminal."""
DRAW_SECONDS = 0.3


class ProgressLine:
    """Where a long command shows how far it is; what is drawn is gone at the end."""

    def __init__(self) -> None:
        self._draws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not console.quiet()
        self._last = time.monotonic()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, line: Callable[[], str]) -> None:
        """Show how far it is, if it is time to. line: makes the text; called only then."""
        now = time.monotonic()
        if now - self._last < (DRAW_SECONDS if self._draws else LINE_SECONDS):
            return
        self._last = now
        if self._draws:
            self._draw(clip(line(), shutil.get_terminal_size().columns - 1))
        else:
            console.progress(line())

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        console.progress(text)

    def clear(self) -> None:
        """Take away what is drawn."""
        if self._draws:
            self._draw("")

    def _draw(self, text: str) -> None:
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
