"""Whether processes run, for tests that end them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def within(seconds: float, happens: Callable[[], bool]) -> bool:
    """Whether it happens in this time; looked at often."""
    limit = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def runs(pid: int) -> bool:
    """Whether the process is there and has not ended; one that nobody has waited for yet has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
