"""The KV cache as the engine's own manager divides it: a budget becomes blocks, tokens and requests. Pure integers.

In: what the layers of an architecture keep, the flags, bytes per GPU. Out: what the engine would log.
layers.py makes pages of layers, groups.py puts layers into groups, capacity.py divides memory among them;
what differs between versions of the engine is a row in versions.yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecat.planner.memory.kv_cache.capacity import given_bytes, kv_capacity, needed_for

__all__ = ["given_bytes", "kv_capacity", "needed_for"]


def __getattr__(name: str) -> Any:
    """Load the division when it is first used: the pages of layers do without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onecat.planner.memory.kv_cache import capacity

    return getattr(capacity, name)
