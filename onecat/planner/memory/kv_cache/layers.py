"""What each layer of an architecture keeps, as pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onecat.checkpoints.architectures.records import Architecture, Cache, KeyValueLayers, LatentLayers, StateLayers
from onecat.planner.memory.dtypes import DTYPE_BYTES
from onecat.planner.memory.kv_cache.blocks import BlockSizes, block_sizes
from onecat.planner.memory.kv_cache.elements import key_value_bytes, latent_bytes
from onecat.planner.memory.kv_cache.latent import latent_pages
from onecat.planner.memory.kv_cache.pages import EVERY_TOKEN, Layer, Pages
from onecat.planner.memory.kv_cache.rules import Rules
from onecat.planner.memory.records import MemorySettings


def layers_of(architecture: Architecture, settings: MemorySettings, rules: Rules) -> tuple[Layer, ...]:
    """All caches of a model, layer by layer, those of draft layers that are loaded last."""
    token, state = _token_bytes_of_first(architecture, settings), _state_bytes_of_largest(architecture, settings)
    sizes = block_sizes(architecture, settings, rules, token, state)
    decoder = architecture.layers or 0
    own = _listed(architecture.caches, settings, sizes)
    drafts = _listed(architecture.draft_caches, settings, sizes) or _like_the_last(own, decoder, settings.draft_layers)
    layers = (*own, *(each for each in drafts if each.index < decoder + settings.draft_layers))
    return layers if rules.windows and settings.hybrid_manager else _keeping_every_token(layers)


def key_value_heads(cache: KeyValueLayers, tensor_parallel: int) -> int:
    """Key-value heads of one rank: each rank has at least one, so they are repeated where there are more ranks."""
    return max(1, cache.key_value_heads // tensor_parallel)


def token_bytes(cache: KeyValueLayers | LatentLayers, settings: MemorySettings) -> int:
    """Bytes of one token in one of these layers on one rank."""
    kv, dtype = settings.kv_cache_dtype, settings.dtype
    if isinstance(cache, LatentLayers):
        return latent_bytes(cache.latent_rank, cache.rope_size, kv, dtype)
    heads = key_value_heads(cache, settings.tensor_parallel)
    return key_value_bytes(heads, cache.head_size, cache.value_head_size, kv, dtype)


def state_bytes(cache: StateLayers, settings: MemorySettings) -> int:
    """Bytes of the states of one sequence in one of these layers on one rank."""
    return sum(
        math.prod(state.on_rank(settings.tensor_parallel, settings.speculative_tokens))
        * DTYPE_BYTES[state.dtype or settings.dtype]
        for state in cache.states
    )


def _token_bytes_of_first(architecture: Architecture, settings: MemorySettings) -> int:
    attention = (each for each in architecture.caches if not isinstance(each, StateLayers))
    return next((token_bytes(each, settings) for each in attention), 0)


def _state_bytes_of_largest(architecture: Architecture, settings: MemorySettings) -> int:
    states = (each for each in architecture.caches if isinstance(each, StateLayers))
    return max((state_bytes(each, settings) for each in states), default=0)


def _listed(caches: Sequence[Cache], settings: MemorySettings, sizes: BlockSizes) -> list[Layer]:
    layers = [
        Layer(index, pages) for cache in caches for pages in _pages(cache, settings, sizes) for index in cache.layers
    ]
    return sorted(layers, key=lambda each: each.index)


def _like_the_last(layers: Sequence[Layer], decoder: int, drafts: int) -> list[Layer]:
    """Draft layers of which nothing is known keep what the last layer keeps that keeps every token."""
    full = [each for each in layers if each.pages.kind in EVERY_TOKEN]
    last = [each.pages for each in full if each.index == full[-1].index]
    return [Layer(decoder + draft, pages) for draft in range(drafts) for pages in last]


def _keeping_every_token(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Layers with windows and chunks as the others have it. Source: _promote_local_kv_cache_specs of vLLM 0.27.1."""
    full = next((each.pages.block_size for each in layers if each.pages.kind in EVERY_TOKEN), None)

    def promoted(pages: Pages) -> Pages:
        if full is None or pages.kind not in ("window", "chunk"):
            return pages
        page = pages.page // pages.block_size * full
        return replace(pages, kind="full", block_size=full, page=page, reach=None)

    return tuple(Layer(each.index, promoted(each.pages)) for each in layers)


def _pages(cache: Cache, settings: MemorySettings, sizes: BlockSizes) -> Iterator[Pages]:
    if isinstance(cache, StateLayers):
        shapes = tuple(state.shape for state in cache.states)
        yield Pages("state", sizes.state, max(state_bytes(cache, settings), sizes.state_page), shapes)
    elif isinstance(cache, LatentLayers):
        yield from latent_pages(cache, settings, sizes, token_bytes(cache, settings))
    else:
        yield _key_value_pages(cache, settings, sizes)


def _key_value_pages(cache: KeyValueLayers, settings: MemorySettings, sizes: BlockSizes) -> Pages:
    size = token_bytes(cache, settings)
    shape = (key_value_heads(cache, settings.tensor_parallel), cache.head_size, cache.value_head_size)
    if cache.cross:
        return Pages("cross", sizes.attention, size * sizes.attention, shape)
    if cache.window is not None:
        return Pages("window", sizes.window, size * sizes.window, shape, cache.window)
    if cache.chunk is not None:
        return Pages("chunk", sizes.attention, size * sizes.attention, shape, cache.chunk)
    return Pages("full", sizes.attention, size * sizes.attention, shape)
