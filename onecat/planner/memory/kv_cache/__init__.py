"""The KV cache as the engine's own manager divides it: a budget becomes blocks, tokens and requests. Pure integers.

In: what the layers of an architecture keep, the flags, bytes per GPU. Out: what the engine would log.
layers.py makes pages of layers, groups.py puts layers into groups, capacity.py divides memory among them;
what differs between versions of the engine is a row in versions.yaml.
"""

from onecat.planner.memory.kv_cache.capacity import kv_capacity, needed_for

__all__ = ["kv_capacity", "needed_for"]
