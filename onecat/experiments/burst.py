"""A burst of load, and how long a server needs to be as before (`onecat bench burst`).

Three parts: calm (single requests, one after the other), the burst (so many at once for so long), and recovery (single
requests again, until one is as quick as calm ones were). Only the end of the burst is worth a definition: it is the
moment after which no more requests are sent. What the server still owes then counts as recovery.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from onecat.experiments.records import Arrivals, Block, Endpoint, Request, Workload
from onecat.experiments.report import moment
from onecat.experiments.running import WARM_UP_SEED, block_sentence, keeping_what_was_cut
from onecat.observe.statistics import errors_by_kind, latencies

if TYPE_CHECKING:
    from onecat.experiments.loads import LoadDriver
    from onecat.experiments.results import ResultFile

Report = Callable[[str], None]
CALM, BURST, RECOVERY = "calm", "burst", "recovery"
ONE_BY_ONE = Arrivals(concurrency=1)
LEVEL = 0.95
MOST_REQUESTS = 50_000
"""More are not prepared: their prompts lie in the sender's memory before the first is sent."""
_PROBE_PAUSE = 0.1
_RESERVE = 1.5


@dataclass(frozen=True)
class Design:
    """What a burst does.

    concurrency: requests at once. seconds: so long new ones are sent. calm_requests: from which the calm latency is
    known; the first `warm_up` do not count. recovery_seconds: the longest that is waited for recovery.
    """

    workload: Workload
    concurrency: int = 100
    seconds: float = 30.0
    calm_requests: int = 40
    warm_up: int = 3
    recovery_seconds: float = 120.0


@dataclass(frozen=True)
class Calm:
    """The latency of single requests, in seconds. low, high: between these lie 95 of 100 (percentiles 2.5 and 97.5;
    of fewer than 40 requests the fastest and the slowest)."""

    n: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Outcome:
    """What a burst found. Times are seconds.

    p99, p99_low, p99_high: to the last token, of answered requests of the burst. timed_out: requests without a whole
    answer in time. lasted: how long requests were sent. owed_seconds: from the end of the burst to the last of its
    answers. recovery_seconds: from the end of the burst until a single request was sent that was as quick as calm ones;
    None: none was in `waited_seconds`. ran_out: all prepared requests were sent before the time was over.
    """

    concurrency: int
    lasted: float
    sent: int
    answered: int
    errors: dict[str, int]
    timed_out: int
    p50: float | None
    p99: float | None
    p99_low: float | None
    p99_high: float | None
    calm: Calm | None
    owed_seconds: float
    recovery_seconds: float | None
    waited_seconds: float
    ran_out: bool
    notes: tuple[str, ...] = ()

    @property
    def recovered(self) -> bool:
        return self.recovery_seconds is not None

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        failed = self.sent - self.answered
        asked = f"{self.concurrency} at once for {self.lasted:.0f} s: {self.sent} sent, {failed} failed"
        whose = " of the answered" if failed else ""
        slow = "" if self.p99 is None else f", P99{whose} {self.p99:.2f} s"
        if self.calm is None:
            after = "; how long recovery takes is not known: no calm request was answered"
        elif self.recovery_seconds is None:
            after = f"; not as before within {self.waited_seconds:.0f} s"
        else:
            after = f"; as before after {self.recovery_seconds:.1f} s"
        return asked + slow + after

    def document(self) -> dict[str, Any]:
        """As plain data, for result files and JSON."""
        return {
            "verdict": "recovered" if self.recovered else "not-recovered",
            "sentence": self.sentence,
            **asdict(self),
            "notes": list(self.notes),
        }


def run_burst(driver: LoadDriver, endpoint: Endpoint, design: Design, results: ResultFile, report: Report) -> Outcome:
    """Do all three parts and keep their blocks. Raises what the driver raises."""
    keeper = _Keeper(driver, endpoint, results, report)
    workload = design.workload
    if design.warm_up:
        few = replace(workload, requests=design.warm_up, seed=workload.seed + WARM_UP_SEED)
        keeper.run(few, ONE_BY_ONE, CALM, "warm-up", warm_up=True)
    single = replace(workload, requests=design.calm_requests, seed=workload.seed + 1)
    calm_block = keeper.run(single, ONE_BY_ONE, CALM, f"calm: {design.calm_requests} requests, one after the other")
    calm = calm_of(calm_block.requests)
    number = requests_for(design, calm)
    burst = keeper.run(
        replace(workload, requests=number, seed=workload.seed + 2),
        Arrivals(concurrency=design.concurrency),
        BURST,
        f"burst: {design.concurrency} at once for {design.seconds:g} s",
        stop_after=design.seconds,
    )
    over = time.monotonic()
    ran_out = len(burst.requests) >= number
    lasted = max((each.start for each in burst.requests), default=0.0) if ran_out else design.seconds
    owed = owed_seconds(burst, lasted)
    recovery, waited = None, owed
    if calm is not None:
        ended_at = moment(burst.started_at) + lasted
        recovery, waited = _await_recovery(keeper, design, calm, over - owed, ended_at, report)
    return outcome(design, calm, burst, lasted, owed, recovery, waited, ran_out=ran_out)


class _Keeper:
    """Runs blocks and keeps them, counting."""

    def __init__(self, driver: LoadDriver, endpoint: Endpoint, results: ResultFile, report: Report) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.results = results
        self.report = report
        self.number = 0

    def run(
        self,
        workload: Workload,
        arrivals: Arrivals,
        arm: str,
        what: str,
        *,
        warm_up: bool = False,
        stop_after: float | None = None,
    ) -> Block:
        self.report(what)
        with keeping_what_was_cut(self.results):
            block = self.driver.run(
                self.endpoint,
                workload,
                arrivals,
                number=self.number,
                arm=arm,
                warm_up=warm_up,
                stop_after=stop_after,
            )
        self.keep(block)
        self.report(f"  {block_sentence(block)}")
        return block

    def keep(self, block: Block) -> None:
        self.results.add_block(block)
        self.number += 1


def calm_of(requests: Sequence[Request]) -> Calm | None:
    """The calm latency; None where nothing was answered."""
    found = sorted(each.end_to_end for each in requests if each.error is None)
    if not found:
        return None
    outside = math.floor(len(found) * (1 - LEVEL) / 2)
    return Calm(len(found), math.fsum(found) / len(found), found[outside], found[len(found) - 1 - outside])


def requests_for(design: Design, calm: Calm | None) -> int:
    """How many requests are prepared for a burst: as many as could be answered if all were as quick as calm ones."""
    if calm is None:
        return design.concurrency * 2
    wanted = math.ceil(design.concurrency * design.seconds / calm.low * _RESERVE) if calm.low > 0 else MOST_REQUESTS
    return max(design.concurrency * 2, min(MOST_REQUESTS, wanted))


def owed_seconds(burst: Block, ended: float) -> float:
    """From the end of the burst to the last of its answers. ended: seconds from the burst's begin to its end."""
    last_answer = max((each.start + each.end_to_end for each in burst.requests), default=0.0)
    return max(0.0, last_answer - ended)


def _await_recovery(
    keeper: _Keeper, design: Design, calm: Calm, ended: float, ended_at: float, report: Report
) -> tuple[float | None, float]:
    """Single requests until one is as quick as calm ones were.

    Parameters:
        ended: the end of the burst, by time.monotonic, for the longest wait: late by what the driver needs to tell of
            the burst, seconds where that was large. ended_at: the same, in seconds since the epoch, by the clock that
            the driver gives times by, so that only it tells when a request was sent.

    Returns the time from the end of the burst until that one was sent, or None, and how long was waited.
    """
    report(f"recovery: single requests until one takes at most {calm.high:.3f} s, for {design.recovery_seconds:g} s")
    found: list[Block] = []
    recovered = None
    seed = design.workload.seed + WARM_UP_SEED * 2
    try:
        while recovered is None and time.monotonic() - ended < design.recovery_seconds:
            probe = replace(design.workload, requests=1, seed=seed + len(found))
            sent = time.monotonic()
            block = keeper.driver.run(keeper.endpoint, probe, ONE_BY_ONE, number=keeper.number, arm=RECOVERY)
            arrived = time.monotonic()
            if block.requests:
                block = _moved(block, moment(block.started_at) + block.requests[0].start - ended_at)
                found.append(block)
                if is_calm(block.requests[0], calm):
                    recovered = block.requests[0].start
            time.sleep(max(0.0, _PROBE_PAUSE - (arrived - sent)))
    finally:
        if found:
            keeper.keep(_joined(found, ended_at))
    answered = [each.start + each.end_to_end for block in found for each in block.requests]
    waited = max(time.monotonic() - ended, *answered, 0.0)
    told = f"as before after {recovered:.1f} s" if recovered is not None else f"not as before after {waited:.0f} s"
    report(f"  {told}, {len(found)} single requests")
    return recovered, waited


def is_calm(request: Request, calm: Calm) -> bool:
    """Whether a single request was as quick as calm ones: one that is quicker still counts too."""
    return request.error is None and request.end_to_end <= calm.high


def outcome(
    design: Design,
    calm: Calm | None,
    burst: Block,
    lasted: float,
    owed: float,
    recovery: float | None,
    waited: float,
    *,
    ran_out: bool,
) -> Outcome:
    """The verdict. Pure."""
    answered = [each for each in burst.requests if each.error is None]
    times = latencies([each.end_to_end for each in answered])
    errors = errors_by_kind(each.error for each in burst.requests)
    notes = []
    if ran_out:
        notes.append(f"all {len(burst.requests)} prepared requests were sent after {lasted:.1f} s")
    if times.p99.note:
        notes.append(f"P99: {times.p99.note}")
    return Outcome(
        concurrency=design.concurrency,
        lasted=lasted,
        sent=len(burst.requests),
        answered=len(answered),
        errors=errors,
        timed_out=errors.get("timed-out", 0),
        p50=times.p50.value,
        p99=times.p99.value,
        p99_low=times.p99.low,
        p99_high=times.p99.high,
        calm=calm,
        owed_seconds=owed,
        recovery_seconds=recovery,
        waited_seconds=waited,
        ran_out=ran_out,
        notes=tuple(notes),
    )


def _moved(block: Block, start: float) -> Block:
    return replace(block, requests=tuple(replace(each, start=start) for each in block.requests))


def _joined(blocks: Sequence[Block], ended_at: float) -> Block:
    """Single requests as one block, which begins with the end of the burst: their starts are seconds since then."""
    requests = tuple(replace(request, index=index) for index, block in enumerate(blocks) for request in block.requests)
    first, last = requests[0], requests[-1]
    return replace(
        blocks[0],
        started_at=datetime.fromtimestamp(ended_at, timezone.utc).isoformat().replace("+00:00", "Z"),
        seconds=last.start + last.end_to_end - first.start,
        requests=requests,
        workload=replace(blocks[0].workload, requests=len(requests)),
    )
