"""Models by what their layers keep, and settings to ask with."""

from __future__ import annotations

from typing import Any

from onecat.checkpoints.architectures import (
    Architecture,
    KeyValueLayers,
    LatentLayers,
    State,
    StateLayers,
)
from onecat.planner.memory import KeyValueCapacity, MemorySettings
from onecat.planner.memory.kv_cache import kv_capacity, needed_for
from onecat.planner.memory.stages import stage_layers

GIB = 2**30


def settings(**given: Any) -> MemorySettings:
    values = {
        "engine_version": "0.27.1",
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "max_model_len": 8192,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "utilization": 0.9,
        "dtype": "bfloat16",
    }
    return MemorySettings(**{**values, **given})


def capacity(architecture: Architecture, available: int, **given: Any) -> KeyValueCapacity:
    """What `available` bytes on each GPU come to."""
    asked = settings(**given)
    stages = stage_layers(architecture, asked.pipeline_parallel)
    found = kv_capacity(architecture, asked, stages, [available] * len(stages))
    assert found is not None
    return found


def needed(architecture: Architecture, length: int, **given: Any) -> tuple[int, ...]:
    asked = settings(**given)
    return needed_for(architecture, asked, stage_layers(architecture, asked.pipeline_parallel), length)


def dense(layers: int, heads: int, key_value_heads: int, size: int, positions: int = 131072) -> Architecture:
    kept = KeyValueLayers(tuple(range(layers)), heads, key_value_heads, size, size)
    return Architecture(layers=layers, max_position_embeddings=positions, caches=(kept,))


def windowed(layers: int, every: int, window: int, key_value_heads: int = 8, size: int = 128) -> Architecture:
    """Each `every`-th layer keeps every token, the others a window."""
    full = tuple(range(every - 1, layers, every))
    rest = tuple(index for index in range(layers) if index not in full)
    return Architecture(
        layers=layers,
        max_position_embeddings=131072,
        caches=(
            KeyValueLayers(full, key_value_heads, key_value_heads, size, size),
            KeyValueLayers(rest, key_value_heads, key_value_heads, size, size, window=window),
        ),
    )


def latent(layers: int, rank: int, rope: int, index: int | None = None, positions: int = 163840) -> Architecture:
    kept = LatentLayers(tuple(range(layers)), 128, rank, rope, index_head_size=index)
    return Architecture(layers=layers, max_position_embeddings=positions, caches=(kept,))


def gated_delta_net(layers: int, key_value_heads: int, convolved: int, heads: int) -> Architecture:
    """Qwen3.6: three layers with states, then one with attention; a draft layer with attention."""
    full = tuple(range(3, layers, 4))
    states = tuple(index for index in range(layers) if index not in full)
    convolution = State("convolution", (3, convolved), divided=1, grows=0)
    recurrent = State("recurrent", (heads, 128, 128), divided=0, dtype="float32")

    def attention(indices: tuple[int, ...]) -> KeyValueLayers:
        return KeyValueLayers(indices, 24, key_value_heads, 256, 256)

    return Architecture(
        layers=layers,
        max_position_embeddings=262144,
        caches=(attention(full), StateLayers(states, "gated-delta-net", (convolution, recurrent))),
        draft_caches=(attention((layers,)),),
    )


def deepseek_v4_flash() -> Architecture:
    """A window in each of 43 layers, entries of 4 tokens in 21 of them and of 128 in 20."""

    def kept(layers: tuple[int, ...], window: int | None, index: int | None, ratio: int) -> LatentLayers:
        return LatentLayers(layers, 64, 448, 64, window, index, ratio)

    return Architecture(
        layers=43,
        max_position_embeddings=1048576,
        caches=(
            kept(tuple(range(43)), 128, None, 1),
            kept(tuple(range(2, 43, 2)), None, 128, 4),
            kept(tuple(range(3, 43, 2)), None, None, 128),
        ),
    )


QWEN36_35B = gated_delta_net(40, key_value_heads=2, convolved=8192, heads=32)
QWEN36_27B = gated_delta_net(64, key_value_heads=4, convolved=10240, heads=48)
