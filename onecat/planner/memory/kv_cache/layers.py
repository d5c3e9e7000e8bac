"""What each layer of an architecture keeps, as pages."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onecat.checkpoints.architectures.records import Architecture, KeyValueLayers, LatentLayers, State, StateLayers
from onecat.planner.memory.kv_cache.blocks import BlockSizes, block_sizes
from onecat.planner.memory.kv_cache.elements import MODEL_BYTES, key_value_bytes, latent_bytes
from onecat.planner.memory.kv_cache.pages import Layer, Pages, ceil_div
from onecat.planner.memory.records import MemorySettings


def layers_of(architecture: Architecture, settings: MemorySettings) -> tuple[Layer, ...]:
    """All caches of a model, layer by layer; those of draft layers follow, as the last full layers have them."""
    token, state = token_bytes(architecture, settings), state_bytes(architecture, settings)
    sizes = block_sizes(architecture, settings, token, state)
    decoder = architecture.layers or 0
    caches = [
        Layer(index, pages)
        for cache in architecture.caches
        for pages in _pages(cache, settings, sizes)
        for index in cache.layers
        if index < decoder
    ]
    caches.sort(key=lambda each: each.index)
    return (*caches, *_drafts(caches, decoder, settings))


def token_bytes(architecture: Architecture, settings: MemorySettings) -> int:
    """Bytes of one token in one layer of attention on one rank, of the first such layers; 0 without any."""
    for cache in architecture.caches:
        if not isinstance(cache, StateLayers):
            return _token_bytes(cache, settings)
    return 0


def state_bytes(architecture: Architecture, settings: MemorySettings) -> int:
    """Bytes of the states of one sequence in one layer on one rank, of the largest such layers; 0 without any."""
    return max(
        (_state_bytes(cache, settings) for cache in architecture.caches if isinstance(cache, StateLayers)), default=0
    )


def _drafts(caches: list[Layer], decoder: int, settings: MemorySettings) -> Iterator[Layer]:
    """Draft layers keep every token, as the last layer does that keeps every token."""
    full = [each for each in caches if each.pages.kind in ("full", "latent")]
    last = [each.pages for each in full if each.index == full[-1].index]
    for draft in range(settings.draft_layers):
        for pages in last:
            yield Layer(decoder + draft, pages)


def _pages(
    cache: KeyValueLayers | LatentLayers | StateLayers, settings: MemorySettings, sizes: BlockSizes
) -> Iterator[Pages]:
    if isinstance(cache, StateLayers):
        shape = (tuple(state.shape for state in cache.states),)
        size = _state_bytes(cache, settings)
        yield Pages("state", sizes.state, max(size, sizes.state_page), shape, unpadded=size)
    elif isinstance(cache, LatentLayers):
        yield from _latent_pages(cache, settings, sizes)
    else:
        yield _key_value_pages(cache, settings, sizes)


def _key_value_pages(cache: KeyValueLayers, settings: MemorySettings, sizes: BlockSizes) -> Pages:
    size = _token_bytes(cache, settings)
    shape = (key_value_heads(cache, settings), cache.head_size)
    if cache.cross:
        return Pages("cross", sizes.attention, size * sizes.attention, shape)
    if cache.window is not None:
        return Pages("window", sizes.window, size * sizes.window, (*shape, cache.value_head_size), cache.window)
    if cache.chunk is not None:
        return Pages("chunk", sizes.attention, size * sizes.attention, shape, cache.chunk)
    return Pages("full", sizes.attention, size * sizes.attention, shape)


def _latent_pages(cache: LatentLayers, settings: MemorySettings, sizes: BlockSizes) -> Iterator[Pages]:
    size = _token_bytes(cache, settings)
    yield Pages("latent", sizes.attention, size * sizes.attention, ("latent", cache.latent_rank, cache.rope_size))
    if cache.index_head_size is not None:
        index = cache.index_head_size + cache.index_head_size // INDEX_GROUP * 4
        yield Pages("latent", sizes.attention, index * sizes.attention, ("index", cache.index_head_size))


INDEX_GROUP = 128
"""Elements of an indexer's key (FP8) that share a float32 scale. Source: vllm/model_executor/models/deepseek_v2.py."""


def _token_bytes(cache: KeyValueLayers | LatentLayers, settings: MemorySettings) -> int:
    kv, dtype = settings.kv_cache_dtype, settings.dtype
    if isinstance(cache, LatentLayers):
        return latent_bytes(cache.latent_rank, cache.rope_size, kv, dtype)
    return key_value_bytes(key_value_heads(cache, settings), cache.head_size, cache.value_head_size, kv, dtype)


def key_value_heads(cache: KeyValueLayers, settings: MemorySettings) -> int:
    """Key-value heads of one rank: each rank has at least one, so they are repeated where there are more ranks."""
    return max(1, cache.key_value_heads // settings.tensor_parallel)


def _state_bytes(cache: StateLayers, settings: MemorySettings) -> int:
    return sum(_elements(state, settings) * MODEL_BYTES[state.dtype or settings.dtype] for state in cache.states)


def _elements(state: State, settings: MemorySettings) -> int:
    shape = list(state.shape)
    shape[state.divided] = ceil_div(shape[state.divided], settings.tensor_parallel)
    if state.grows is not None:
        shape[state.grows] += settings.speculative_tokens
    return math.prod(shape)
