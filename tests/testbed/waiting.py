"""Waiting for what another program does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something is so. Raises AssertionError when it is not in time."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.05)
