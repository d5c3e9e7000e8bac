"""Experiments as they are measured, for tests of what is made of them: latencies of a queue, from a fixed seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from onecat.experiments.records import (
    Arrivals,
    Block,
    Environment,
    Experiment,
    Kind,
    Objectives,
    Request,
    Workload,
)

BEGUN = datetime(2026, 7, 28, 10, 15, 2, tzinfo=timezone.utc)
ARM = {
    "engine": "vllm",
    "engine_version": "0.27.1",
    "patches": "vllm-0.27.1 (12 patches)",
    "profile": "v100x2-pcie",
    "server_args": ["--tensor-parallel-size", "2", "--max-num-seqs", "64", "--dtype", "float16"],
    "model": "qwen3-8b",
    "checkpoint": "sha256:5d41402abc4b2a76",
    "release": 3,
    "gpus": ["Tesla V100-PCIE-32GB", "Tesla V100-PCIE-32GB"],
    "facts": "sha256:9b74c9897bac770f",
}


def moment(seconds: float) -> str:
    return (BEGUN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def a_block(
    number: int,
    *,
    arm: str = "",
    at: float = 0.0,
    concurrency: int | None = 8,
    requests: int = 100,
    speed: float = 1.0,
    seed: int = 0,
    failing: float = 0.0,
    endpoint: str = "chat",
    warm_up: bool = False,
    output_tokens: int = 24,
) -> Block:
    """A block of requests to a server of `speed`, so many at once; a share of `failing` is not answered."""
    chance = random.Random(f"{number} {arm} {seed}")
    crowd = concurrency or 32
    sent = []
    free = [index * 0.004 for index in range(crowd)]
    for index in range(requests):
        start = heapq.heappop(free)
        request = _request(index, start, crowd, speed, failing, output_tokens, chance)
        sent.append(request)
        heapq.heappush(free, start + request.end_to_end)
    seconds = round(max(each.start + each.end_to_end for each in sent), 6)
    workload = Workload(requests=requests, output_tokens=output_tokens, seed=seed)
    return Block(number, endpoint, moment(at), seconds, tuple(sent), Arrivals(concurrency), workload, arm, warm_up)


def _request(
    index: int, start: float, crowd: int, speed: float, failing: float, output_tokens: int, chance: random.Random
) -> Request:
    if chance.random() < failing:
        error = chance.choice((("timed-out", "no answer in 30 s"), ("http-503", "503 Service Unavailable")))
        took = 30.0 if error[0] == "timed-out" else 0.05
        return Request(index, round(start, 6), 512, 0, None, took, (), *error)
    stall = 4.0 if chance.random() < 0.02 else 1.0
    ttft = (0.05 + 0.012 * crowd) * chance.lognormvariate(0, 0.3) * stall / speed
    gap = (0.02 + 0.0008 * crowd) / speed
    gaps = tuple(round(gap * chance.lognormvariate(0, 0.12), 6) for _ in range(output_tokens - 1))
    return Request(index, round(start, 6), 512, output_tokens, round(ttft, 6), round(ttft + sum(gaps), 6), gaps)


def an_experiment(
    blocks: Sequence[Block],
    *,
    kind: Kind = "run",
    identity: str = "0123456789ab",
    arms: Mapping[str, Mapping[str, Any]] | None = None,
    verdict: Mapping[str, Any] | None = None,
    samples: Sequence[Mapping[str, Any]] = (),
    objectives: Objectives = Objectives(),  # noqa: B008 - frozen
    finished: bool = True,
) -> Experiment:
    """An experiment of these blocks on a machine with two V100."""
    known = {name: {**ARM, **arm} for name, arm in (arms or {"": {}}).items()}
    driver = {"name": "vllm bench serve", "version": "0.27.1", "where": "gpu1, container", "cores": "12-15"}
    ends = max((each.seconds for each in blocks), default=0.0)
    return Experiment(
        id=identity,
        kind=kind,
        started_at=moment(0),
        environment=Environment("0.9.0", "desk", driver, known),
        blocks=tuple(blocks),
        objectives=objectives,
        settings={},
        samples=tuple(map(dict, samples)),
        verdict=None if verdict is None else dict(verdict),
        finished_at=moment(200 + ends) if finished else None,
    )


def a_run(**changed: Any) -> Experiment:
    """Three repetitions after a warm-up; `changed` goes to each block."""
    blocks = [
        a_block(0, warm_up=True, requests=16, **{key: value for key, value in changed.items() if key != "requests"})
    ]
    blocks += [a_block(number, at=30.0 * number, seed=number, **changed) for number in range(1, 4)]
    return an_experiment(blocks)
