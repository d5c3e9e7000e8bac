"""How engine v0 divides the KV cache: every layer keeps every token, in blocks of one size.

Source: vllm/worker/cache_engine.py (get_cache_block_size) and vllm/worker/worker.py (determine_num_available_blocks)
at 0.6.6; windows and cross attention take as much as the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from onecat.checkpoints.architectures.records import Architecture, StateLayers
from onecat.planner.memory.kv_cache.blocks import GPU_BLOCK
from onecat.planner.memory.kv_cache.division import Division, divided
from onecat.planner.memory.kv_cache.layers import token_bytes
from onecat.planner.memory.kv_cache.pages import Layer, Limits, Pages
from onecat.planner.memory.kv_cache.rules import Rules
from onecat.planner.memory.records import MemorySettings
from onecat.planner.memory.stages import Stage


def divided_by_v0(
    architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage], rules: Rules
) -> Division:
    """The division of a version of vLLM with engine v0; what states take is not in its blocks."""
    block = settings.block_size or GPU_BLOCK
    layers = [
        Layer(index, Pages("full", block, block * token_bytes(cache, settings)))
        for cache in architecture.caches
        if not isinstance(cache, StateLayers)
        for index in cache.layers
    ]
    return divided(sorted(layers, key=lambda each: each.index), stages, Limits(in_flight=0), rules)
