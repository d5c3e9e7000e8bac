"""The engine's own records of what layers keep, as arguments, from an architecture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onecat.checkpoints.architectures import Architecture, Cache, KeyValueLayers, LatentLayers, StateLayers
from onecat.planner.memory import MemorySettings
from onecat.planner.memory.kv_cache.blocks import BlockSizes, block_sizes, state_mode
from onecat.planner.memory.kv_cache.layers import state_bytes, token_bytes
from onecat.planner.memory.kv_cache.rules import rules_of
from onecat.planner.memory.stages import Stage

PACKED = {"cache_dtype_str": "fp8_ds_mla", "dtype": "uint8", "kv_cache_dtype": "fp8_ds_mla"}

Specs = dict[str, dict[str, Any]]


def workers_of(architecture: Architecture, settings: MemorySettings, stages: Sequence[Stage]) -> list[Specs]:
    """By stage, what each of its layers would give to the engine's manager."""
    rules = rules_of(settings.engine_version)
    attention = [each for each in architecture.caches if not isinstance(each, StateLayers)]
    states = [each for each in architecture.caches if isinstance(each, StateLayers)]
    sizes = block_sizes(
        architecture,
        settings,
        rules,
        token_bytes(attention[0], settings) if attention else 0,
        max((state_bytes(each, settings) for each in states), default=0),
    )
    mode = state_mode(architecture, settings, rules)
    caches = [*architecture.caches, *(architecture.draft_caches if settings.draft_layers else ())]
    named = [
        (layer, f"layers.{layer}.{part}", spec)
        for cache in caches
        for part, spec in _of_cache(cache, settings, sizes, mode)
        for layer in cache.layers
    ]
    named.sort(key=lambda each: each[0])
    return [
        {
            name: dict(spec)
            for layer, name, spec in named
            if layer in stage.layers or (stage.last and layer >= stage.layers.stop)
        }
        for stage in stages
    ]


def _of_cache(
    cache: Cache, settings: MemorySettings, sizes: BlockSizes, mode: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(cache, StateLayers):
        yield "states", _states(cache, settings, sizes, mode)
    elif isinstance(cache, LatentLayers):
        yield from _latent(cache, settings, sizes)
    else:
        yield "cross" if cache.cross else "attention", _attention(cache, settings, sizes)


def _attention(cache: KeyValueLayers, settings: MemorySettings, sizes: BlockSizes) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "num_kv_heads": max(1, cache.key_value_heads // settings.tensor_parallel),
        "head_size": cache.head_size,
        "dtype": settings.dtype if settings.kv_cache_dtype == "auto" else "uint8",
        "kv_cache_dtype": settings.kv_cache_dtype,
        "block_size": sizes.attention,
    }
    if cache.cross:
        return {"class": "CrossAttentionSpec", **spec}
    if cache.chunk is not None:
        return {"class": "ChunkedLocalAttentionSpec", "attention_chunk_size": cache.chunk, **spec}
    spec["head_size_v"] = cache.value_head_size
    if cache.window is not None:
        return {"class": "SlidingWindowSpec", "sliding_window": cache.window, **spec, "block_size": sizes.window}
    return {"class": "FullAttentionSpec", **spec}


def _states(cache: StateLayers, settings: MemorySettings, sizes: BlockSizes, mode: str) -> dict[str, Any]:
    return {
        "class": "MambaSpec",
        "block_size": sizes.state,
        "shapes": [each.on_rank(settings.tensor_parallel, settings.speculative_tokens) for each in cache.states],
        "dtypes": [each.dtype or settings.dtype for each in cache.states],
        "page_size_padded": sizes.state_page or None,
        "mamba_cache_mode": mode,
        "num_speculative_blocks": settings.speculative_tokens,
    }


def _latent(cache: LatentLayers, settings: MemorySettings, sizes: BlockSizes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Source: vllm 0.27.1, vllm/models/deepseek_v4/attention.py and compressor.py, sparse_swa.py, deepseek_v2.py."""
    width, ratio = cache.latent_rank + cache.rope_size, cache.compress_ratio
    packed: dict[str, Any] = {"num_kv_heads": 1, "head_size": width, **PACKED}
    fourth = {"alignment": 576, "model_version": "deepseek_v4"}
    if cache.window is not None:
        window = {"class": "SlidingWindowMLASpec", "block_size": 64, "sliding_window": cache.window}
        yield "window", {**packed, **fourth, **window}
    index: dict[str, Any] = {"class": "MLAAttentionSpec", "block_size": sizes.attention, "num_kv_heads": 1}
    index |= {"head_size": (cache.index_head_size or 0) + 4, "dtype": "uint8", "kv_cache_dtype": "auto"}
    if ratio > 1:
        entries = {"class": "MLAAttentionSpec", "block_size": sizes.attention, "compress_ratio": ratio}
        yield "entries", {**packed, **fourth, **entries}
        widths = {"compressor": width}
        if cache.index_head_size is not None:
            yield "index", {**index, "compress_ratio": ratio, "alignment": 576}
            widths["index compressor"] = cache.index_head_size
        twice = 2 if ratio == 4 else 1
        for name, each in widths.items():
            yield name, {
                "class": "SlidingWindowMLASpec", "block_size": {4: 4, 128: 8}[ratio], "num_kv_heads": 1,
                "head_size": 2 * twice * each, "dtype": "float32", "kv_cache_dtype": "auto",
                "sliding_window": twice * ratio, "alignment": 576,
            }  # fmt: skip
    elif cache.window is None:
        plain: dict[str, Any] = {"class": "MLAAttentionSpec", "block_size": sizes.attention}
        if settings.kv_cache_dtype == "fp8_ds_mla":
            yield "latent", {**packed, **plain}
        else:
            dtype = settings.dtype if settings.kv_cache_dtype == "auto" else "uint8"
            yield "latent", {**packed, **plain, "cache_dtype_str": settings.kv_cache_dtype, "dtype": dtype,
                             "kv_cache_dtype": settings.kv_cache_dtype}  # fmt: skip
        if cache.index_head_size is not None:
            yield "index", index
