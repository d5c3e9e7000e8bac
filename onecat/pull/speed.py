"""How fast bytes come, over the last seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

_SECONDS = 10.0
_SHORTEST = 0.1


def speeds(received: Callable[[], int]) -> Iterator[float]:
    """Bytes per second over the last seconds, one value at each turn."""
    seen: deque[tuple[float, int]] = deque()
    while True:
        now, count = time.monotonic(), received()
        seen.append((now, count))
        while now - seen[0][0] > _SECONDS:
            seen.popleft()
        yield (count - seen[0][1]) / max(now - seen[0][0], _SHORTEST)
