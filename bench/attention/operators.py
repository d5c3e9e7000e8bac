"""Our operators over a case: the cache as they keep it, in memory that is NaN wherever nothing was written."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from vllm_volta import attention_ops

from bench.attention.cases import Case


@dataclass(frozen=True)
class Workspace:
    """What split attention works in; arrivals are zeros before and after."""

    partial: torch.Tensor
    arrivals: torch.Tensor


def workspace(case: Case, tokens: int, fragments: int) -> Workspace:
    """For so many tokens of decoding requests. Partial results begin as NaN: none may be read that was not written."""
    heads = case.heads
    sizes = attention_ops.workspace_sizes(
        case.query, heads.kv_heads, heads.group, heads.head_size, case.requests, max(1, tokens), fragments
    )
    device = case.query.device
    return Workspace(
        torch.full((sizes[0],), float("nan"), device=device),
        torch.zeros(sizes[1], dtype=torch.int32, device=device),
    )


def empty_cache(case: Case) -> torch.Tensor:
    """fp16 [blocks, kv_heads, block_size, 2 * head_size], all NaN."""
    heads = case.heads
    shape = case.blocks, heads.kv_heads, heads.block_size, 2 * heads.head_size
    return torch.full(shape, float("nan"), dtype=torch.float16, device=case.query.device)


def filled_cache(case: Case, slots: torch.Tensor | None = None, into: torch.Tensor | None = None) -> torch.Tensor:
    """The cache with the keys and values of all requests, and nothing else.

    slots: case.used_slots(), where they are known. into: a cache to fill instead of an empty one.
    """
    cache = empty_cache(case) if into is None else into
    slots = case.used_slots() if slots is None else slots
    if len(slots):
        attention_ops.write_cache(case.keys[slots], case.values[slots], cache, slots)
    return cache


def decode_part(case: Case, decodes: int) -> tuple[int, int]:
    """Tokens of the first `decodes` requests, and the most of one."""
    queries = case.queries[:decodes]
    return sum(queries), max(queries, default=0)


def attend(
    case: Case,
    cache: torch.Tensor,
    space: Workspace,
    fragments: int,
    decodes: int,
    out: torch.Tensor | None = None,
    parts: tuple[int, int] | None = None,
) -> torch.Tensor:
    """The first `decodes` requests by split attention, the others by tiled attention; NaN where nothing is written.

    parts: decode_part(), where the device must not be asked for it.
    """
    if out is None:
        out = torch.full_like(case.query, float("nan"))
    options = case.options
    tokens, most = decode_part(case, decodes) if parts is None else parts
    attention_ops.paged_attention(
        case.query,
        cache,
        out,
        case.query_start,
        case.lengths,
        case.block_table,
        space.partial,
        space.arrivals,
        options.sinks,
        options.slopes,
        options.ranges,
        decodes,
        tokens,
        most,
        case.tokens,
        case.scale,
        options.soft_cap,
        options.window,
        options.clamp_ranges,
        fragments,
    )
    return out


def answer(case: Case, fragments: int, decodes: int, device: torch.device) -> tuple[torch.Tensor, Workspace]:
    """Fill a cache and attend on a device: the result, where the case is, and the workspace as it was left."""
    slots, there = case.used_slots().to(device), case.to(device)
    parts = decode_part(case, decodes)
    space = workspace(there, parts[0], fragments)
    cache = filled_cache(there, slots)
    return attend(there, cache, space, fragments, decodes, parts=parts).to(case.query.device), space
