"""The memory model: what a model takes of each GPU, and what is left for its KV cache. Pure.

In: a checkpoint, devices, the flags that decide. Out: an `Estimate`, GPU by GPU, as the engine's version would log it.
What differs between versions of the engine is a row in versions.yaml.
"""

from onecat.planner.memory.estimation import estimate
from onecat.planner.memory.overhead import seen_by_engine
from onecat.planner.memory.records import Device, Estimate, GpuMemory, KeyValueCapacity, MemorySettings
from onecat.planner.memory.settings import resolved_settings

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
