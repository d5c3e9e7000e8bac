"""Load for hours or days at a bounded rate, while the server is looked at (`onecat bench soak`).

Requests are sent in short blocks, each on the disk before the next begins: whatever ends a soak, it goes on from there.
Only the time under load counts, so an interruption makes it no shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from onecat.experiments.records import Arrivals, Block, Endpoint, Workload
from onecat.experiments.running import WARM_UP_SEED, block_sentence, keeping_what_was_cut

if TYPE_CHECKING:
    from onecat.experiments.loads import LoadDriver
    from onecat.experiments.results import ResultFile
    from onecat.experiments.watching import ServerWatch

Report = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """What a server must keep. error_percent: of requests. growth_percent: of its memory in a day."""

    error_percent: float = 0.1
    growth_percent: float = 5.0


@dataclass(frozen=True)
class Design:
    """What a soak does.

    seconds: under load. arrivals: with a rate; its concurrency bounds what a server that hangs collects.
    block_seconds: of a block. sample_seconds: between two looks at the server. warm_up: requests that do not count.
    """

    workload: Workload
    arrivals: Arrivals
    seconds: float
    block_seconds: float = 60.0
    sample_seconds: float = 15.0
    warm_up: int = 0
    limits: Limits = Limits()

    @property
    def rate(self) -> float:
        assert self.arrivals.rate is not None
        return self.arrivals.rate


def design_document(design: Design) -> dict[str, Any]:
    """As plain data, for the result file's settings."""
    return asdict(design)


def design_from(document: dict[str, Any]) -> Design:
    """The design that `design_document` made this from. Raises KeyError or TypeError for another document."""
    return Design(
        **{
            **document,
            "workload": Workload(**document["workload"]),
            "arrivals": Arrivals(**document["arrivals"]),
            "limits": Limits(**document["limits"]),
        }
    )


def seconds_done(blocks: Sequence[Block]) -> float:
    """For how long there was load."""
    return math.fsum(_seconds_of(each) for each in blocks if not each.warm_up)


def _seconds_of(block: Block) -> float:
    """A block's time, with the wait before its first request: n requests at a rate take n / rate. Without that, a soak
    at one request in minutes, two of them a block, would take twice its time."""
    rate = block.arrivals.rate
    return block.seconds if rate is None else max(block.seconds, len(block.requests) / rate)


def run_soak(
    driver: LoadDriver, endpoint: Endpoint, design: Design, results: ResultFile, watch: ServerWatch, report: Report
) -> None:
    """Send load until the time is over, counting what the file has already.

    Raises what the driver raises, and OnecatError when the server's host cannot be looked at any more; what was
    measured until then is in the file.
    """
    blocks = list(results.experiment.blocks)
    done = seconds_done(blocks)
    number = 1 + max((each.number for each in blocks), default=-1)
    try:
        if design.warm_up and not blocks:
            few = replace(design.workload, requests=design.warm_up, seed=design.workload.seed + WARM_UP_SEED)
            report(f"warm-up: {design.warm_up} requests")
            _send(driver, endpoint, few, design.arrivals, number, results, warm_up=True)
            number += 1
        # All blocks are alike, so the last one may go on beyond the time.
        requests = max(1, round(design.block_seconds * design.rate))
        while done < design.seconds:
            workload = replace(design.workload, requests=requests, seed=design.workload.seed + number)
            block = _send(driver, endpoint, workload, design.arrivals, number, results)
            number += 1
            done += _seconds_of(block)
            for sample in watch.take():
                results.add_sample(sample)
            watch.check()
            report(f"{_clock(done)} of {_clock(design.seconds)}: {block_sentence(block)}{watch.sentence()}")
    finally:
        for sample in watch.take():
            results.add_sample(sample)


def _send(
    driver: LoadDriver,
    endpoint: Endpoint,
    workload: Workload,
    arrivals: Arrivals,
    number: int,
    results: ResultFile,
    *,
    warm_up: bool = False,
) -> Block:
    with keeping_what_was_cut(results):
        block = driver.run(endpoint, workload, arrivals, number=number, warm_up=warm_up)
    # Gaps between single tokens of three days would be hundreds of MB; the time per token is known without them.
    block = replace(block, requests=tuple(replace(each, inter_token=()) for each in block.requests))
    results.add_block(block)
    return block


def _clock(seconds: float) -> str:
    """0:05:07"""
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
