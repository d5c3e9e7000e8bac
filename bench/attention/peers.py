"""Who else attends: torch's scaled_dot_product_attention over gathered keys, and vLLM's Triton attention."""

from __future__ import annotations

import ctypes
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from bench.attention import prebuilt, upstream
from bench.attention.cases import Case
from bench.attention.shapes import Batch, Heads

MOST_LOGITS_BYTES = 8 << 30
"""SDPA's plain implementation keeps all logits; larger ones are left out."""
MOST_MASK_BYTES = 2 << 30
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)


@dataclass(frozen=True)
class Gathered:
    """Contiguous query [requests, heads, queries, d], keys and values [requests, kv_heads, keys, d]; only keys that
    some query sees. mask: bool [queries, keys] where causality alone does not say it."""

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    mask: torch.Tensor | None


def window_mask(batch: Batch, device: torch.device) -> torch.Tensor | None:
    """Who sees whom in a batch with a sliding window and several queries."""
    if not batch.heads.window or batch.decodes:
        return None
    keys = torch.arange(batch.length - batch.seen_keys, batch.length, device=device)[None, :]
    own = torch.arange(batch.length - batch.queries, batch.length, device=device)[:, None]
    return (keys <= own) & (own - keys < batch.heads.window)


def gathered(case: Case, batch: Batch) -> Gathered:
    """A case of equal requests, as SDPA wants it."""
    heads = case.heads
    slots = torch.stack([case.slots(request)[-batch.seen_keys :] for request in range(case.requests)])
    query = case.query.view(batch.requests, batch.queries, heads.heads, heads.head_size).transpose(1, 2).contiguous()
    keys, values = (each[slots].transpose(1, 2).contiguous() for each in (case.keys, case.values))
    return Gathered(query, keys, values, window_mask(batch, query.device))


@dataclass(frozen=True)
class Sdpa:
    """torch's attention in fp16 by the first of its implementations that takes the inputs.

    backend: its name; "expanded" when keys and values had to be repeated for each query head, before it is timed.
    """

    call: Callable[[], torch.Tensor]
    backend: str


def sdpa(inputs: Gathered, scale: float) -> Sdpa | None:
    """None where no implementation takes the inputs, or the plain one would need too much memory."""
    query, keys, values = inputs.query, inputs.keys, inputs.values
    requests, heads, queries, _ = query.shape
    length = keys.shape[2]
    group = heads // keys.shape[1]
    for backend in BACKENDS:
        if backend is SDPBackend.MATH and requests * heads * queries * length * 4 > MOST_LOGITS_BYTES:
            continue
        expanded = backend is SDPBackend.EFFICIENT_ATTENTION and group > 1
        if expanded and keys.numel() * 4 * group > MOST_LOGITS_BYTES:
            continue
        own_keys, own_values = ((each.repeat_interleave(group, 1) if expanded else each) for each in (keys, values))
        bias: object = inputs.mask
        if bias is None and 1 < queries < length:
            bias = causal_lower_right(queries, length)

        def call(
            backend: SDPBackend = backend,
            own_keys: torch.Tensor = own_keys,
            own_values: torch.Tensor = own_values,
            bias: object = bias,
            grouped: bool = group > 1 and not expanded,
        ) -> torch.Tensor:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    query,
                    own_keys,
                    own_values,
                    attn_mask=bias,  # type: ignore[arg-type]
                    is_causal=bias is None and queries > 1,
                    scale=scale,
                    enable_gqa=grouped,
                )

        try:
            call()
        except (RuntimeError, ValueError):
            continue
        name = backend.name.removesuffix("_ATTENTION").lower()
        return Sdpa(call, f"{name}, expanded" if expanded else name)
    return None


def tokens_of(result: torch.Tensor) -> torch.Tensor:
    """SDPA's result as [tokens, heads, head_size]."""
    return result.transpose(1, 2).flatten(0, 1)


@dataclass(frozen=True)
class Triton:
    """vLLM's Triton attention from one archive: compiled here for this GPU, and as it was compiled for a V100."""

    native: ModuleType
    volta: ModuleType
    kernels: prebuilt.Kernels

    def native_attention(self, heads: Heads, device: torch.device) -> upstream.UnifiedAttention:
        return upstream.UnifiedAttention(self.native, heads.heads, heads.kv_heads, heads.head_size, device)

    def volta_attention(self, heads: Heads, device: torch.device) -> upstream.UnifiedAttention:
        return upstream.UnifiedAttention(self.volta, heads.heads, heads.kv_heads, heads.head_size, device)


def load_triton(archive: Path, scratch: Path) -> Triton:
    """archive: made by pack_peers.py; it is unpacked to `scratch`. Raises FileNotFoundError, OSError."""
    with tarfile.open(archive) as packed:
        packed.extractall(scratch, filter="data")
    kernels = prebuilt.Kernels(
        scratch,
        prebuilt.read_listing(scratch),
        ctypes.CDLL("libcuda.so.1"),
        lambda: torch.cuda.current_stream().cuda_stream,
    )
    volta = upstream.load(scratch)
    for name in {each.kernel for each in kernels.variants}:
        setattr(volta, name, kernels.named(name))
    return Triton(upstream.load(scratch), volta, kernels)


def upstream_cache(case: Case) -> torch.Tensor:
    """The case's keys and values as TRITON_ATTN keeps them by default: [blocks, kv_heads, block_size, 2 * head_size],
    in memory with tokens before heads; NaN where no request has a token."""
    heads = case.heads
    shape = case.blocks * heads.block_size, heads.kv_heads, 2 * heads.head_size
    cache = torch.full(shape, float("nan"), dtype=torch.float16, device=case.query.device)
    slots = case.used_slots()
    cache[slots] = torch.cat((case.keys[slots], case.values[slots]), 2)
    return cache.view(case.blocks, heads.block_size, heads.kv_heads, 2 * heads.head_size).transpose(1, 2)


def triton_answer(attention: upstream.UnifiedAttention, case: Case, cache: torch.Tensor) -> torch.Tensor:
    """vLLM's attention over such a cache."""
    out = torch.full_like(case.query, float("nan"))
    options = case.options
    attention(
        case.query,
        cache,
        out,
        case.query_start,
        case.lengths,
        case.block_table,
        max(case.queries),
        case.scale,
        window=options.window,
        soft_cap=options.soft_cap,
        sinks=options.sinks,
        slopes=options.slopes,
        ranges=options.ranges,
        clamp_ranges=options.clamp_ranges,
    )
    return out
