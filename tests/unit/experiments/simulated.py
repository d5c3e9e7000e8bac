"""A load driver for tests of what follows from measurements: blocks with times that are made, not measured.

The real one is tested where it is used (tests/testbed): here it matters which blocks are asked for, and what is made
of times that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from onecat.experiments.records import Arrivals, Block, Endpoint, Request, Workload


def block_of(
    seconds: Mapping[int, float],
    *,
    number: int = 0,
    arm: str = "",
    seed: int = 0,
    failed: int = 0,
    warm_up: bool = False,
    tokens: int = 10,
) -> Block:
    """A block whose requests took so many seconds each, by the index of the prompt; `failed` others failed."""
    answered = [
        Request(index, 0.0, 100, tokens, value / 5, value, (value * 0.8 / (tokens - 1),) * (tokens - 1))
        for index, value in seconds.items()
    ]
    broken = [Request(1000 + each, 0.0, 100, 0, None, 1.0, error="timeout") for each in range(failed)]
    return Block(
        number=number,
        endpoint=f"endpoint {arm}",
        started_at="2026-01-01T00:00:00Z",
        seconds=sum(seconds.values()),
        requests=(*answered, *broken),
        arrivals=Arrivals(concurrency=1),
        workload=Workload(requests=len(answered) + failed, seed=seed),
        arm=arm,
        warm_up=warm_up,
    )


@dataclass
class SimulatedDriver:
    """Answers with times by the endpoint's label. speeds: seconds of a request there. calls: what was asked for."""

    speeds: Callable[[str], float]
    noise: float = 0.01
    failing: Mapping[str, int] = field(default_factory=dict)
    stop_after: int | None = None
    calls: list[tuple[str, str, int, bool]] = field(default_factory=list)

    def run(
        self,
        endpoint: Endpoint,
        workload: Workload,
        arrivals: Arrivals,
        *,
        number: int,
        arm: str = "",
        warm_up: bool = False,
        stop_after: float | None = None,
    ) -> Block:
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        self.calls.append((endpoint.label, arm, workload.seed, warm_up))
        # The same prompts take as long as each other; the machine is a little slower or faster in each block.
        prompts = np.random.default_rng(workload.seed).uniform(0.5, 2, workload.requests)
        moment = np.random.default_rng([number, workload.seed]).normal(0, self.noise)
        times = prompts * self.speeds(endpoint.label) * np.exp(moment)
        return block_of(
            dict(enumerate(times.tolist())), number=number, arm=arm, seed=workload.seed,
            failed=self.failing.get(endpoint.label, 0), warm_up=warm_up,
        )  # fmt: skip

    def describe(self) -> dict[str, Any]:
        return {"driver": "simulated"}

    def close(self) -> None:
        pass

    def __enter__(self) -> SimulatedDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
