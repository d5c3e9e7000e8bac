"""Ports for the servers of tests."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket

# Below those that the kernel gives to the connections of clients (ip(7), ip_local_port_range: from 32768 on): such a
# connection takes none by chance, and neither one of the next that a second release takes.
_FIRST, _LAST, _APART = 10_000, 32_000, 20
_NUMBERS = itertools.count(random.randrange(_LAST))


def free_port() -> int:
    """A port of 127.0.0.1 that is free, and the next few with it; another one each time."""
    for number in itertools.islice(_NUMBERS, 500):
        port = _FIRST + number * _APART % (_LAST - _FIRST)
        if all(_is_free(each) for each in range(port, port + 4)):
            return port
    raise RuntimeError("no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False
