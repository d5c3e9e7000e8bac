"""Errors by norm against float64, side by side: ours, torch's SDPA in fp16, and vLLM's Triton attention."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from bench.attention import operators, peers
from bench.attention.cases import random_case
from bench.attention.comparison import norm_error
from bench.attention.findings import FRAGMENTS, LARGE, SDPA, TRITON, TRITON_70, Errors
from bench.attention.reference import exact
from bench.attention.shapes import Batch, Heads


def batches(heads: Sequence[Heads], quick: bool) -> list[Batch]:
    """Decoding and prompts of each layer."""
    decoding = [(8192, 2)] if quick else [(512, 8), (8192, 2), (32768, 2)]
    prompts = [(512, 0)] if quick else [(512, 0), (2048, 0), (256, 8192)]
    return [
        each
        for layer in heads
        for each in (
            *(Batch(layer, requests, 1, length) for length, requests in decoding),
            *(Batch(layer, 1, queries, queries + context) for queries, context in prompts),
        )
    ]


def errors(
    chosen: Sequence[Batch], triton: peers.Triton | None, generator: torch.Generator, until: float
) -> Iterator[Errors]:
    """Each batch with plain and with large queries, until the monotonic clock says `until`."""
    for batch in chosen:
        for factor in (1.0, LARGE):
            if time.monotonic() > until:
                return
            yield errors_of(batch, factor, triton, generator)


def errors_of(batch: Batch, factor: float, triton: peers.Triton | None, generator: torch.Generator) -> Errors:
    count = batch.requests
    case = random_case(batch.heads, [batch.length] * count, [batch.queries] * count, generator)
    case.query.mul_(factor)
    device = case.query.device
    expected = exact(case, deviations=False)
    found: dict[str, float] = {}
    for fragments, name in FRAGMENTS.items():
        decodes = count if batch.decodes else 0
        found[name] = norm_error(operators.answer(case, fragments, decodes, device)[0], expected)
    other = peers.sdpa(peers.gathered(case, batch), case.scale)
    if other is not None:
        found[SDPA] = norm_error(peers.tokens_of(other.call()), expected)
    if triton is not None:
        cache = peers.upstream_cache(case)
        for name, attention in (
            (TRITON, triton.native_attention(batch.heads, device)),
            (TRITON_70, triton.volta_attention(batch.heads, device)),
        ):
            found[name] = norm_error(peers.triton_answer(attention, case, cache), expected)
    rounding = norm_error(expected.result.half(), expected)
    return Errors(batch, factor, rounding, other.backend if other is not None else "-", found)
