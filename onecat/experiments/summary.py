"""What blocks of requests come to: latencies, throughput, goodput, errors, each with its interval. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onecat.experiments.records import Block, Objectives, Request
from onecat.observe.statistics import (
    Estimate,
    Latencies,
    errors_by_kind,
    latencies,
    ratio_interval,
    share_interval,
)

LEVEL = 0.95


@dataclass(frozen=True)
class Summary:
    """What blocks of one arm come to. Times are seconds, rates are by second.

    blocks: how many, warm-ups left out. seconds: of all of them. errors: how many requests by kind.
    ttft: to the first token. inter_token: each gap between chunks. per_token: of a request, the mean time of each token
    after its first. end_to_end: to the last token; end_to_end_per_token: that, by its number of output tokens.
    requests_rate: answered; output_rate, input_rate: tokens of answered requests. good_share: of all requests that were
    sent, those that kept the objectives; goodput: so many a second; both None without objectives.
    """

    blocks: int
    seconds: float
    requests: int
    answered: int
    errors: dict[str, int]
    input_tokens: int
    output_tokens: int
    ttft: Latencies
    inter_token: Latencies
    per_token: Latencies
    end_to_end: Latencies
    end_to_end_per_token: Latencies
    requests_rate: Estimate
    output_rate: Estimate
    input_rate: Estimate
    good_share: Estimate | None = None
    goodput: Estimate | None = None

    @property
    def failed(self) -> int:
        return self.requests - self.answered

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def summarise(blocks: Sequence[Block], objectives: Objectives | None = None, level: float = LEVEL) -> Summary:
    """What blocks come to; warm-ups are left out.

    Intervals come from the spread between blocks where there are two or more: requests of one block are not
    independent. With one block each request counts as independent, and gaps of one request do not.
    """
    measured = [each for each in blocks if not each.warm_up]
    answered = [
        (number, each) for number, block in enumerate(measured) for each in block.requests if each.error is None
    ]
    places = [number for number, _ in answered]

    def of(values: Sequence[float | None]) -> Latencies:
        known = [(value, place) for value, place in zip(values, places, strict=True) if value is not None]
        return latencies([value for value, _ in known], [place for _, place in known], level)

    several = len(measured) > 1
    gaps = [
        (gap, block if several else number) for number, (block, each) in enumerate(answered) for gap in each.inter_token
    ]
    seconds = [each.seconds for each in measured]

    def rate(of_block: Sequence[float]) -> Estimate:
        return ratio_interval(of_block, seconds, level)

    good = None if objectives is None or objectives == Objectives() else _good(measured, objectives)
    kept = None if objectives is None else share_of_good(measured, objectives, level)
    return Summary(
        blocks=len(measured),
        seconds=math.fsum(seconds),
        requests=sum(len(each.requests) for each in measured),
        answered=len(answered),
        errors=errors_by_kind(each.error for block in measured for each in block.requests),
        input_tokens=sum(each.input_tokens for _, each in answered),
        output_tokens=sum(each.output_tokens for _, each in answered),
        ttft=of([each.ttft for _, each in answered]),
        inter_token=latencies([gap for gap, _ in gaps], [place for _, place in gaps], level),
        per_token=of([per_token(each) for _, each in answered]),
        end_to_end=of([each.end_to_end for _, each in answered]),
        end_to_end_per_token=of([end_to_end_per_token(each) for _, each in answered]),
        requests_rate=rate([sum(1 for _ in _answered(block)) for block in measured]),
        output_rate=rate([sum(each.output_tokens for each in _answered(block)) for block in measured]),
        input_rate=rate([sum(each.input_tokens for each in _answered(block)) for block in measured]),
        good_share=kept,
        goodput=None if good is None else rate(_counted(good, len(measured))),
    )


def share_of_good(blocks: Sequence[Block], objectives: Objectives, level: float = LEVEL) -> Estimate | None:
    """How many of all requests that were sent kept the objectives, warm-ups left out; None without objectives."""
    if objectives == Objectives():
        return None
    good = _good([each for each in blocks if not each.warm_up], objectives)
    return share_interval([kept for _, kept in good], [at for at, _ in good], level)


def per_token(request: Request) -> float | None:
    """The mean time of each token after the first, in seconds; None where there is at most one."""
    if request.ttft is None or request.output_tokens < 2:
        return None
    return (request.end_to_end - request.ttft) / (request.output_tokens - 1)


def end_to_end_per_token(request: Request) -> float | None:
    """The time to the last token by the number of output tokens, in seconds; None without any."""
    return request.end_to_end / request.output_tokens if request.output_tokens else None


def is_good(request: Request, objectives: Objectives) -> bool:
    """Whether a request was answered and kept all that is demanded. `inter_token_ms` is held against the mean time of
    its tokens after the first, as the engine's benchmark does with its `tpot`."""
    if request.error is not None:
        return False
    limits = (
        (request.ttft, objectives.ttft_ms),
        # Of a single token there is nothing to wait for; of several, a time that is not known keeps nothing.
        (0.0 if request.output_tokens < 2 else per_token(request), objectives.inter_token_ms),
        (request.end_to_end, objectives.end_to_end_ms),
    )
    return all(limit is None or (value is not None and value * 1000 <= limit) for value, limit in limits)


def _answered(block: Block) -> Iterator[Request]:
    return (each for each in block.requests if each.error is None)


def _good(blocks: Sequence[Block], objectives: Objectives) -> list[tuple[int, bool]]:
    """For each request its block and whether it was good."""
    return [(number, is_good(each, objectives)) for number, block in enumerate(blocks) for each in block.requests]


def _counted(good: Sequence[tuple[int, bool]], blocks: int) -> list[float]:
    counts = [0.0] * blocks
    for number, kept in good:
        counts[number] += kept
    return counts
