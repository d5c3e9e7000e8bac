"""The memory model: what a model takes of each GPU, and what is left for its KV cache. Pure.

In: a checkpoint, devices, the flags that decide. Out: an `Estimate`, GPU by GPU, as the engine's version would log it.
What differs between versions of the engine is a row in versions.yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecat.planner.memory.estimation import estimate
    from onecat.planner.memory.overhead import seen_by_engine
    from onecat.planner.memory.records import Device, Estimate, GpuMemory, KeyValueCapacity, MemorySettings
    from onecat.planner.memory.settings import resolved_settings

_HOMES = {
    "Device": "records",
    "Estimate": "records",
    "GpuMemory": "records",
    "KeyValueCapacity": "records",
    "MemorySettings": "records",
    "estimate": "estimation",
    "resolved_settings": "settings",
    "seen_by_engine": "overhead",
}

__all__ = [
    "Device",
    "Estimate",
    "GpuMemory",
    "KeyValueCapacity",
    "MemorySettings",
    "estimate",
    "resolved_settings",
    "seen_by_engine",
]


def __getattr__(name: str) -> Any:
    """Load a part when it is first used: what a model keeps for a token needs neither engines nor estimates."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
