"""Ports for the servers of tests."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import random
import socket
import tempfile
from pathlib import Path

# Below those that the kernel gives to the connections of clients (ip(7), ip_local_port_range: from 32768 on): such a
# connection takes none by chance, and neither one of the next that a second release takes.
_FIRST, _LAST, _APART = 10_000, 32_000, 20
_NUMBERS = itertools.count(random.randrange(_LAST))


def free_port() -> int:
    """A port of 127.0.0.1 that is free, and the next few with it; another one each time."""
    for number in itertools.islice(_NUMBERS, 500):
        port = _FIRST + number * _APART % (_LAST - _FIRST)
        if _is_claimed(port) and all(_is_free(each) for each in range(port, port + 4)):
            return port
    raise RuntimeError("no free port")


@functools.cache
def _claims() -> int:
    """A file in which each byte stands for a port: tests of several processes take none of one another's."""
    return os.open(Path(tempfile.gettempdir(), "onecat-test-ports"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _is_claimed(port: int) -> bool:
    """Whether the port and the next few are this process's own from now on, until it ends."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, _APART, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False
