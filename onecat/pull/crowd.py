"""How many connections ask one server at once: fewer, where it says that they are too many."""

from __future__ import annotations

import threading

MOST_REFUSALS = 2
"""In a row, after which a connection leaves the work to the others."""


class RefusedError(Exception):
    """The server wants fewer connections at once, and this one leaves the work to the others."""


class Crowd:
    """How many connections are at work; one may leave as long as another one stays."""

    def __init__(self, count: int) -> None:
        self._count, self._lock = count, threading.Lock()

    def leave(self) -> bool:
        """Leave, unless this is the last one."""
        with self._lock:
            if self._count <= 1:
                return False
            self._count -= 1
            return True
