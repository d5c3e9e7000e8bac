"""The KV cache: how a budget becomes blocks and tokens, as the engine's own manager divides it."""

from __future__ import annotations

from collections.abc import Sequence

from onecat.checkpoints import Architecture
from onecat.planner.memory.records import KeyValueCapacity, MemorySettings
from onecat.planner.memory.stages import Stage


def kv_capacity(
    architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage], available: Sequence[int]
) -> KeyValueCapacity | None:
    """What `available` bytes per GPU (by stage) come to; None when they hold no block."""
    raise NotImplementedError


def needed_for(
    architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage], length: int
) -> tuple[int, ...]:
    """Bytes per GPU (by stage) that one request of `length` tokens needs."""
    raise NotImplementedError
