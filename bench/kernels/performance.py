"""Times of the layers' multiplications next to cuBLAS with the weight in fp16, in the same run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch
from vllm_volta import ops

from bench.kernels.findings import Crossing, Row
from bench.kernels.shapes import Layer
from bench.kernels.timing import copies_past_cache, seconds_of
from bench.kernels.weights import Weight, random_panels


def rotated(format_: str, layer: Layer, fragments: int, generator: torch.Generator) -> list[Weight]:
    """So many random weights of the layer that the cache does not hold them."""
    first = random_panels(format_, layer.n, layer.k, fragments, generator)
    more = range(copies_past_cache(first.stored_bytes) - 1)
    return [first, *(random_panels(format_, layer.n, layer.k, fragments, generator) for _ in more)]


def half_weights(layer: Layer, generator: torch.Generator) -> list[torch.Tensor]:
    shape = layer.n, layer.k
    count = copies_past_cache(2 * layer.weights)
    return [
        torch.empty(shape, dtype=torch.float16, device=generator.device).normal_(generator=generator)
        for _ in range(count)
    ]


def activations(layer: Layer, m: int, generator: torch.Generator) -> torch.Tensor:
    return torch.empty((m, layer.k), dtype=torch.float16, device=generator.device).normal_(generator=generator)


def half_times(layer: Layer, tokens: Sequence[int], generator: torch.Generator) -> dict[int, float]:
    """Seconds of torch's matmul with the weight in fp16, by the number of tokens."""
    weights = half_weights(layer, generator)
    found = {}
    for m in tokens:
        x = activations(layer, m, generator)
        found[m] = seconds_of([lambda weight=weight: torch.nn.functional.linear(x, weight) for weight in weights])  # noqa: B023
    return found


def rows(
    layers: Sequence[Layer],
    formats: Sequence[str],
    tokens: Sequence[int],
    copy_rate: float,
    fragments: int,
    generator: torch.Generator,
    until: float,
) -> Iterator[Row]:
    """Layer by layer, until the monotonic clock says `until`."""
    for layer in layers:
        if time.monotonic() > until:
            return
        half = half_times(layer, tokens, generator)
        for format_ in formats:
            weights = rotated(format_, layer, fragments, generator)
            for m in tokens:
                x = activations(layer, m, generator)
                seconds = seconds_of([lambda weight=weight: weight.linear(x) for weight in weights])  # noqa: B023
                moved = weights[0].stored_bytes + 2 * m * (layer.n + layer.k)
                yield Row(layer, format_, m, seconds, half[m], moved, copy_rate)
            del weights


def crossings(
    layers: Sequence[Layer],
    formats: Sequence[str],
    tokens: Sequence[int],
    fragments: int,
    generator: torch.Generator,
    until: float,
) -> Iterator[Crossing]:
    """The layer's operator with its limit of tokens for panels moved above and below all of them."""
    for layer in layers:
        if time.monotonic() > until:
            return
        half = half_times(layer, tokens, generator)
        for format_ in formats:
            weights = rotated(format_, layer, fragments, generator)
            for m in tokens:
                x = activations(layer, m, generator)
                calls = [lambda weight=weight: weight.linear(x) for weight in weights]  # noqa: B023
                seconds = [_with_panels_up_to(limit, calls) for limit in (m, 0)]
                yield Crossing(layer, format_, m, seconds[0], seconds[1], half[m])
            del weights


def _with_panels_up_to(limit: int, calls: list[object]) -> float:
    kept = ops.MAX_PANEL_TOKENS
    ops.MAX_PANEL_TOKENS = limit
    try:
        return seconds_of(calls)  # type: ignore[arg-type]
    finally:
        ops.MAX_PANEL_TOKENS = kept
