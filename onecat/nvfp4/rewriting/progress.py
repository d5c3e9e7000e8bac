"""How far a run has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """done, total: bytes read of the source. seconds: since the run began. module: what it works on.

    reused: bytes of `done` that an earlier run had finished; the speed counts without them.
    """

    done: int
    total: int
    seconds: float
    module: str
    reused: int = 0


Show = Callable[[Progress], None]
