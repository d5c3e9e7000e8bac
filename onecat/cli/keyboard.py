"""Single keys from the terminal, while a view is shown."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator

QUIT = frozenset("qQ")


@contextlib.contextmanager
def single_keys() -> Iterator[bool]:
    """Let keys come at once and unseen while the block runs; yields whether there is a terminal that they come from."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield False
        return
    try:
        tty.setcbreak(descriptor)  # Ctrl-C still interrupts
        yield True
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def pressed(seconds: float, *, attended: bool) -> str:
    """The keys that come within some seconds, at once when there are any; sleeps where nobody can press any."""
    if not attended:
        time.sleep(max(0.0, seconds))
        return ""
    if not select.select([sys.stdin], [], [], max(0.0, seconds))[0]:
        return ""
    return os.read(sys.stdin.fileno(), 64).decode(errors="replace")
