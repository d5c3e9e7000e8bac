"""How much of a checkpoint is in memory, so that reading ahead and writing behind do not fill it."""

from __future__ import annotations

import threading

SLACK = 32 * 2**20
"""Bytes that may always be held: small tensors are read ahead whatever the largest is."""


class Memory:
    """Bytes of tensors that are held by three threads: read ahead, worked on, and waiting to be written.

    They stay below twice the largest tensor, so that with what a step makes they are below three times it.
    """

    def __init__(self, largest: int) -> None:
        self._limit = 2 * largest + SLACK
        self.changed = threading.Condition()
        self._held = 0

    def fits(self, count: int) -> bool:
        """Whether so many bytes more may be held."""
        return self._held + count <= self._limit

    def add(self, count: int) -> None:
        """So many bytes more are held, or fewer when it is negative."""
        with self.changed:
            self._held += count
            self.changed.notify_all()
