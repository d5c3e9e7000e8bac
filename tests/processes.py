"""Whether processes run, for tests that end them."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

AnyProcess = TypeVar("AnyProcess", bound="subprocess.Popen[Any]")


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


@contextlib.contextmanager
def ended_after(process: AnyProcess, seconds: float) -> Iterator[AnyProcess]:
    """The process, which is killed at the end of the block, and after this time where the block waits for it."""
    watchdog = threading.Timer(seconds, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
