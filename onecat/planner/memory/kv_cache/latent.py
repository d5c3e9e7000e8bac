"""Pages of latent attention: plain, sparse, and with compressed entries.

Source: vllm 0.27.1, vllm/model_executor/models/deepseek_v2.py (DeepseekV32IndexerCache), vllm/models/deepseek_v4/
attention.py and compressor.py, vllm/v1/attention/backends/mla/sparse_swa.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures.records import LatentLayers
from onecat.planner.memory.kv_cache.blocks import BlockSizes
from onecat.planner.memory.kv_cache.elements import element_bytes
from onecat.planner.memory.kv_cache.pages import Pages, ceil_div
from onecat.planner.memory.records import MemorySettings

INDEX_GROUP, INDEX_SCALE = 128, 4
"""Elements of an indexer's key (FP8) that share a float32 scale, and its bytes."""

COMPRESSED_TOKEN = 584
"""Bytes of an entry of DeepSeek-V4 in FP8: 448 values, 64 of BF16 that carry the position, 8 scales of a byte."""

PACKED_ALIGNMENT, PLAIN_ALIGNMENT = 576, 512
"""Bytes that pages of these layers are multiples of, in FP8 and in other types."""

WINDOW_BLOCK = 64
"""Tokens of a block of the window beside compressed entries."""

COMPRESSOR_BLOCKS = {4: 4, 128: 8}
"""Tokens of a block of what a compressor has not yet compressed, by how many tokens it makes into one entry."""

OVERLAPS = {4: 2}
"""How many entries a token is part of, where it is more than one."""

FLOAT = 4


def latent_pages(cache: LatentLayers, settings: MemorySettings, sizes: BlockSizes, token: int) -> Iterator[Pages]:
    """All caches of a layer. token: bytes of a plain entry."""
    if cache.window is not None or cache.compress_ratio > 1:
        yield from _compressed(cache, settings, sizes)
        return
    shape = (cache.latent_rank, cache.rope_size)
    yield Pages("latent", sizes.attention, token * sizes.attention, shape)
    if cache.index_head_size is not None:
        index = index_bytes(cache.index_head_size)
        yield Pages("latent", sizes.attention, index * sizes.attention, ("index", cache.index_head_size))


def index_bytes(head_size: int) -> int:
    """Bytes of the indexer's key of one token."""
    return head_size + ceil_div(head_size, INDEX_GROUP) * INDEX_SCALE


def _compressed(cache: LatentLayers, settings: MemorySettings, sizes: BlockSizes) -> Iterator[Pages]:
    """A window of plain entries; where entries are compressed, those, the indexer's, and the compressors' states."""
    packed = settings.kv_cache_dtype.startswith("fp8")
    alignment = PACKED_ALIGNMENT if packed else PLAIN_ALIGNMENT
    width = cache.latent_rank + cache.rope_size
    entry = COMPRESSED_TOKEN if packed else width * element_bytes(settings.kv_cache_dtype, settings.dtype)
    ratio = cache.compress_ratio

    def aligned(size: int) -> int:
        return ceil_div(size, alignment) * alignment

    if cache.window is not None:
        yield Pages("latent-window", WINDOW_BLOCK, aligned(entry * WINDOW_BLOCK), (width,), cache.window)
    if ratio <= 1:
        return
    rows = sizes.attention // ratio
    yield Pages("latent", sizes.attention, aligned(entry * rows), (width, ratio))
    widths = [width]
    if cache.index_head_size is not None:
        yield Pages("latent", sizes.attention, aligned(index_bytes(cache.index_head_size) * rows), ("index", ratio))
        widths.append(cache.index_head_size)
    overlap, block = OVERLAPS.get(ratio, 1), COMPRESSOR_BLOCKS.get(ratio, ratio)
    for each in widths:
        # A value and its score for each element.
        page = aligned(2 * overlap * each * FLOAT * block)
        yield Pages("latent-window", block, page, ("compressor", each), overlap * ratio)
