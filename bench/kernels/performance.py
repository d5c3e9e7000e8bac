"""Times of the layers' multiplications next to cuBLAS with the weight in fp16, in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from vllm_volta import ops

from bench.gpu.timing import copies_past_cache, seconds_of
from bench.kernels.findings import Crossing, Row
from bench.kernels.shapes import Layer
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


@dataclass(frozen=True)
class Case:
    """A layer's weights in one format, called with so many tokens; `half`: seconds of torch with the weight in fp16."""

    layer: Layer
    format: str
    tokens: int
    calls: Sequence[Callable[[], object]]
    stored_bytes: int
    half: float


def cases(
    layers: Sequence[Layer],
    formats: Sequence[str],
    tokens: Sequence[int],
    fragments: int,
    generator: torch.Generator,
    until: float,
) -> Iterator[Case]:
    """Layer by layer, until the monotonic clock says `until`."""
    for layer in layers:
        if time.monotonic() > until:
            return
        half = half_times(layer, tokens, generator)
        for format_ in formats:
            weights = rotated(format_, layer, fragments, generator)
            for m in tokens:
                x = activations(layer, m, generator)
                calls = [lambda weight=weight: weight.linear(x) for weight in weights]  # noqa: B023
                yield Case(layer, format_, m, calls, weights[0].stored_bytes, half[m])
            del weights


def rows(
    layers: Sequence[Layer],
    formats: Sequence[str],
    tokens: Sequence[int],
    copy_rate: float,
    fragments: int,
    generator: torch.Generator,
    until: float,
) -> Iterator[Row]:
    """The layer's operator as it is."""
    for case in cases(layers, formats, tokens, fragments, generator, until):
        moved = case.stored_bytes + 2 * case.tokens * (case.layer.n + case.layer.k)
        yield Row(case.layer, case.format, case.tokens, seconds_of(case.calls), case.half, moved, copy_rate)


def crossings(
    layers: Sequence[Layer],
    formats: Sequence[str],
    tokens: Sequence[int],
    fragments: int,
    generator: torch.Generator,
    until: float,
) -> Iterator[Crossing]:
    """The layer's operator with its limit of tokens for panels moved above and below all of them."""
    for case in cases(layers, formats, tokens, fragments, generator, until):
        panels, dequantised = (_with_panels_up_to(limit, case.calls) for limit in (case.tokens, 0))
        yield Crossing(case.layer, case.format, case.tokens, panels, dequantised, case.half)


def _with_panels_up_to(limit: int, calls: Sequence[Callable[[], object]]) -> float:
    kept = ops.MAX_PANEL_TOKENS
    ops.MAX_PANEL_TOKENS = limit
    try:
        return seconds_of(calls)
    finally:
        ops.MAX_PANEL_TOKENS = kept
