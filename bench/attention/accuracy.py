"""Errors by norm against float64, side by side: ours, torch's SDPA in fp16, and vLLM's Triton attention."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from bench.attention import operators, peers
from bench.attention.cases import random_case
from bench.attention.comparison import norm_error
from bench.attention.operators import FRAGMENTS
from bench.attention.reference import exact
from bench.attention.shapes import Batch, Heads

LARGE = 8.0
"""Queries are so many times as large in the second half of the cases: attention to few keys instead of many."""
AGREEMENT = 5e-3
"""An error by norm above this is no rounding: what computes it computes something else."""


@dataclass(frozen=True)
class Errors:
    """Relative errors by norm of one batch, by who made them; the best that an fp16 result can have, `rounding`."""

    batch: Batch
    factor: float
    rounding: float
    sdpa_backend: str
    errors: dict[str, float]

    @property
    def ours(self) -> float:
        return max(value for name, value in self.errors.items() if name in FRAGMENTS.values())

    @property
    def disagreeing(self) -> list[str]:
        """Who is further away than rounding explains, or no number."""
        return [name for name, error in self.errors.items() if not error <= AGREEMENT]


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
        found["SDPA"] = norm_error(peers.tokens_of(other.call()), expected)
    if triton is not None:
        cache = peers.upstream_cache(case)
        for name, attention in (
            ("Triton", triton.native_attention(batch.heads, device)),
            ("Triton sm_70", triton.volta_attention(batch.heads, device)),
        ):
            found[name] = norm_error(peers.triton_answer(attention, case, cache), expected)
    rounding = norm_error(expected.result.half(), expected)
    return Errors(batch, factor, rounding, other.backend if other is not None else "-", found)
