"""What a model keeps for each token and each sequence, whatever memory there is for it."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.checkpoints import Architecture
from onecat.checkpoints.architectures.records import StateLayers
from onecat.planner.memory.kv_cache.layers import layers_of, state_bytes
from onecat.planner.memory.kv_cache.pages import EVERY_TOKEN
from onecat.planner.memory.kv_cache.rules import rules_of
from onecat.planner.memory.records import MemorySettings


@dataclass(frozen=True)
class Kept:
    """Bytes on one GPU without tensor parallelism. per_token: in layers that keep every token. per_sequence: states,
    and the windows of layers that keep no more than a window, full."""

    per_token: int
    per_sequence: int


def kept(architecture: Architecture, dtype: str, kv_cache_dtype: str = "auto", version: str = "0.27.1") -> Kept:
    """What the layers of a model keep, before an engine cuts it into blocks and pads them.

    Parameters:
        dtype: of the model (`bfloat16`). kv_cache_dtype: as the flag. version: of vLLM, whose layouts differ.
    """
    settings = MemorySettings(
        engine_version=version,
        tensor_parallel=1,
        pipeline_parallel=1,
        max_model_len=architecture.max_position_embeddings or 4096,
        max_num_seqs=1,
        max_num_batched_tokens=2048,
        utilization=1.0,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
    )
    token = 0
    sequence = sum(
        len(each.layers) * state_bytes(each, settings) for each in architecture.caches if isinstance(each, StateLayers)
    )
    for layer in layers_of(architecture, settings, rules_of(version)):
        pages = layer.pages
        if pages.kind in EVERY_TOKEN:
            token += pages.page // pages.block_size
        elif pages.kind != "state":
            sequence += pages.page * -(-(pages.reach or 0) // pages.block_size)
    return Kept(token, sequence)
