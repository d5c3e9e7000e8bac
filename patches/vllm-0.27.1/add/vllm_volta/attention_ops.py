"""Paged attention and the writing of its cache: the compiled kernels on CUDA, the same in plain PyTorch elsewhere.

The cache is vLLM's, float16 [blocks, kv_heads, block_size, 2 * head_size], its last two dimensions contiguous. What a
block has of one KV head is this package's own affair (csrc/attention.h): groups of 16 tokens, of each the keys, eight
dimensions of all tokens after the other, then the values, token by token.

The PyTorch side is the definition that the kernels are held to, and what tests serve with where there is no GPU. It is
float32 inside, and takes one request at a time.
"""

from __future__ import annotations

import math

import torch

from vllm_volta import extension

CACHE_GROUP = 16
"""Tokens of a group of the cache."""
PIECE = 8
"""Dimensions of a key that lie together; head sizes are multiples of it."""
HEAD_SIZES = (64, 80, 96, 128, 256, 512)
"""Those that there are kernels for."""
MOST_PASSES = 4
"""How often split attention may go through all keys of a request before the request is given to tiled attention. On an
H200 it was 1.2 to 5 times as fast with so many rows (head sizes 128 and 256, 2k and 32k keys); where the L2 cache is
smaller than there, as on Volta, more passes would read the keys from memory too often."""
OPERATORS = ("write_cache", "paged_attention", "attention_workspace")


def are_compiled() -> bool:
    """Whether the compiled operators for attention are loaded."""
    return all(hasattr(torch.ops.vllm_volta, operator) for operator in OPERATORS)


def fragments_for(like: torch.Tensor) -> int:
    """The fragments of tensor cores that the kernels use on this tensor's device; 0, unused, off CUDA.

    Raises RuntimeError on CUDA without compiled kernels, as workspace_sizes does.
    """
    if not like.is_cuda:
        return 0
    _check_compiled()
    return torch.ops.vllm_volta.panel_fragments(like)


def workspace_sizes(
    like: torch.Tensor, kv_heads: int, group: int, head_size: int, requests: int, tokens: int, fragments: int
) -> tuple[int, int]:
    """Floats of `partial` and counters of `arrivals` that attention needs at most on this tensor's device.

    group: query heads of a KV head. requests, tokens: the most of one call, as `decodes` and `decode_tokens`.
    """
    if not like.is_cuda:
        return 0, 0
    _check_compiled()
    return torch.ops.vllm_volta.attention_workspace(like, kv_heads, group, head_size, requests, tokens, fragments)


def split_rows(head_size: int) -> int:
    """Rows (query tokens times query heads of a KV head) that split attention takes through the keys at once."""
    return 8 if head_size == 512 else 16


def write_cache(key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Write new keys and values into the cache.

    key, value: float16 [tokens, kv_heads, head_size], of which the first len(slots) are written. slots: int64, block *
    block_size + place in the block; negative for a token that is left out.
    """
    if cache.is_cuda:
        torch.ops.vllm_volta.write_cache.default(_readable(key), _readable(value), cache, slots)
        return
    _check_cache(cache, key.shape[2])
    keys, values = _groups(cache)
    block_size = cache.shape[2]
    kept = torch.nonzero(slots >= 0).flatten()
    blocks, places = slots[kept] // block_size, slots[kept] % block_size
    groups, tokens = places // CACHE_GROUP, places % CACHE_GROUP
    keys[blocks, :, groups, :, tokens] = key[kept].unflatten(2, (-1, PIECE))
    values[blocks, :, groups, tokens] = value[kept]


def paged_attention(
    query: torch.Tensor,
    cache: torch.Tensor,
    out: torch.Tensor,
    query_start: torch.Tensor,
    lengths: torch.Tensor,
    block_table: torch.Tensor,
    partial: torch.Tensor,
    arrivals: torch.Tensor,
    sinks: torch.Tensor | None,
    slopes: torch.Tensor | None,
    ranges: torch.Tensor | None,
    decodes: int,
    decode_tokens: int,
    most_decode_queries: int,
    tokens: int,
    scale: float,
    soft_cap: float,
    window: int,
    clamp_ranges: bool,
    fragments: int,
) -> None:
    """Causal attention of some tokens of each request to what the cache holds of it, written to `out`.

    query, out: float16 [at least tokens, heads, head_size]; `out` stays as it is beyond the requests' tokens.
    query_start: int32 [requests + 1], the first token of each request. lengths: int32 [requests], tokens in the cache
    with those of this call, which are its last; 0 for no request. block_table: int32 [requests, blocks].
    partial, arrivals: float32 and int32 workspaces of workspace_sizes; arrivals is zeros before and after.
    sinks: float32 [heads], logits without a value. slopes: float32 [heads], ALiBi. ranges: int32 [requests, ranges, 2],
    first and last position of tokens that see each other, beyond `window` too unless clamp_ranges.
    The first `decodes` requests, of decode_tokens tokens in all and at most most_decode_queries each, are few rows to
    many keys; they and the rest (tokens - decode_tokens) go to kernels of their own.
    window: so many keys, its own included, are seen by a token; 0 for all. soft_cap: 0 for none.
    """
    if query.is_cuda:
        torch.ops.vllm_volta.paged_attention.default(
            _readable(query),
            cache,
            out,
            query_start,
            lengths,
            block_table,
            partial,
            arrivals,
            sinks,
            slopes,
            ranges,
            decodes,
            decode_tokens,
            most_decode_queries,
            tokens,
            scale,
            soft_cap,
            window,
            clamp_ranges,
            fragments,
        )
        return
    _check_cache(cache, query.shape[2])
    starts = query_start.tolist()
    for request, length in enumerate(lengths.tolist()):
        first, last = starts[request], starts[request + 1]
        if first == last or length == 0:
            continue
        keys, values = cached(cache, block_table[request], length)
        positions = torch.arange(length - (last - first), length)
        visible = visible_keys(positions, length, window, None if ranges is None else ranges[request], clamp_ranges)
        out[first:last] = attend(
            query[first:last], keys, values, positions, visible, sinks, slopes, scale=scale, soft_cap=soft_cap
        )


def cached(cache: torch.Tensor, blocks: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [length, kv_heads, head_size] of the first tokens of a request with these blocks."""
    used = blocks[: -(-length // cache.shape[2])].long()
    keys, values = (part[used] for part in _groups(cache))
    head_size = cache.shape[3] // 2
    tokens = (0, 2, 4, 1, 3, 5), (0, 2, 3, 1, 4)
    keys, values = (part.permute(order).flatten(0, 2) for part, order in zip((keys, values), tokens, strict=True))
    return keys.reshape(-1, cache.shape[1], head_size)[:length], values[:length]


def visible_keys(
    positions: torch.Tensor, length: int, window: int, ranges: torch.Tensor | None, clamp_ranges: bool
) -> torch.Tensor:
    """Whether tokens at these positions see each of `length` keys: bool [positions, length]."""
    own, keys = positions[:, None], torch.arange(length)[None, :]
    near = own - keys < window if window else torch.ones(1, 1, dtype=torch.bool)
    visible = (keys <= own) & near
    for first, last in [] if ranges is None else ranges.tolist():
        together = (own >= first) & (own <= last) & (keys >= first) & (keys <= last)
        visible = visible | (together & near if clamp_ranges else together)
    return visible


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    positions: torch.Tensor,
    visible: torch.Tensor,
    sinks: torch.Tensor | None,
    slopes: torch.Tensor | None,
    *,
    scale: float,
    soft_cap: float,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Attention of query [tokens, heads, head_size] to the keys that it sees, in `dtype`; the same shape.

    Each token sees at least its own key. Keys that no token sees may be anything, NaN too.
    """
    seen = visible.any(0)[:, None, None]
    group = query.shape[1] // keys.shape[1]
    keys, values = (
        torch.where(seen, part, 0).to(dtype).repeat_interleave(group, 1).transpose(0, 1) for part in (keys, values)
    )
    logits = query.to(dtype).transpose(0, 1) @ keys.transpose(1, 2) * scale
    if soft_cap:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    if slopes is not None:
        distance = torch.arange(len(seen))[None, :] - positions[:, None]
        logits = logits + slopes.to(dtype)[:, None, None] * distance
    logits = logits.masked_fill(~visible, -math.inf)
    if sinks is not None:
        logits = torch.cat((logits, sinks.to(dtype)[:, None, None].expand(-1, len(query), 1)), 2)
    return (torch.softmax(logits, 2)[..., : len(seen)] @ values).transpose(0, 1)


def _groups(cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the cache: keys [blocks, heads, groups, d / 8, 16, 8] and values [blocks, heads, groups, 16, d]."""
    head_size = cache.shape[3] // 2
    groups = cache.flatten(2).unflatten(2, (-1, 2, CACHE_GROUP * head_size))
    return (
        groups[:, :, :, 0].unflatten(3, (head_size // PIECE, CACHE_GROUP, PIECE)),
        groups[:, :, :, 1].unflatten(3, (CACHE_GROUP, head_size)),
    )


def _check_cache(cache: torch.Tensor, head_size: int) -> None:
    _, _, block_size, row = cache.shape
    if block_size % CACHE_GROUP or row != 2 * head_size or head_size not in HEAD_SIZES:
        raise ValueError(
            f"the cache must be [blocks, heads, a multiple of {CACHE_GROUP}, 2 * head size], head size one of "
            f"{', '.join(map(str, HEAD_SIZES))} ({head_size} here), it is {list(cache.shape)}"
        )
    if cache.stride()[2:] != (row, 1):
        raise ValueError(f"the last two dimensions of the cache must be contiguous, its strides are {cache.stride()}")


def _check_compiled() -> None:
    if not are_compiled():
        raise RuntimeError(
            f"{extension.EXTENSION} has no kernels for attention. Build vllm_volta with them, or serve with "
            "--attention-backend TRITON_ATTN"
        )


def _readable(rows: torch.Tensor) -> torch.Tensor:
    """The same [tokens, heads, head_size] with heads contiguous and tokens at multiples of 16 bytes."""
    token, head, dimension = rows.stride()
    if dimension == 1 and head == rows.shape[2] and token % PIECE == 0 and rows.data_ptr() % 16 == 0:
        return rows
    return rows.clone(memory_format=torch.contiguous_format)
