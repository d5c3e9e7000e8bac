"""What "faster" means: the metrics that a comparison can decide by. A new one is a row of METRICS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onecat.errors import OnecatError
from onecat.experiments.records import Block, Request
from onecat.experiments.summary import end_to_end_per_token, per_token


@dataclass(frozen=True)
class Metric:
    """One way to be fast.

    title: for people. unit: of `values`. values: of a block, by the index of the prompt; what is of the whole block
    alone has index 0.
    """

    name: str
    title: str
    unit: str
    higher_is_better: bool
    values: Callable[[Block], Mapping[int, float]]


def _of_requests(value: Callable[[Request], float | None]) -> Callable[[Block], Mapping[int, float]]:
    def values(block: Block) -> Mapping[int, float]:
        found = ((each.index, value(each)) for each in block.requests if each.error is None)
        return {index: value for index, value in found if value is not None and value > 0}

    return values


def _throughput(block: Block) -> Mapping[int, float]:
    tokens = sum(each.output_tokens for each in block.requests if each.error is None)
    return {0: tokens / block.seconds} if tokens and block.seconds > 0 else {}


DEFAULT_METRIC = "per-token"
METRICS = {
    each.name: each
    for each in (
        # What a user waits for, whatever the length of the answer: "normalised latency" of the papers on Orca and vLLM
        # (https://arxiv.org/abs/2309.06180, 6.1).
        Metric("per-token", "end-to-end time per output token", "s", False, _of_requests(end_to_end_per_token)),
        Metric("end-to-end", "end-to-end time", "s", False, _of_requests(lambda each: each.end_to_end)),
        Metric("ttft", "time to first token", "s", False, _of_requests(lambda each: each.ttft)),
        Metric("inter-token", "time per token after the first", "s", False, _of_requests(per_token)),
        Metric("throughput", "output tokens per second", "tokens/s", True, _throughput),
    )
}


def metric_called(name: str) -> Metric:
    """The metric of that name. Raises OnecatError (exit code 2)."""
    if name not in METRICS:
        raise OnecatError(
            f"there is no metric {name}",
            expected=f"one of: {', '.join(METRICS)}",
            next_steps=[f"--metric {DEFAULT_METRIC}"],
        )
    return METRICS[name]
