"""The blocks of a run, and a burst's figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from onecat.experiments.burst import Calm, Design, calm_of, is_calm, outcome, owed_seconds, requests_for, run_burst
from onecat.experiments.records import Arrivals, Block, Endpoint, Environment, Request, Workload
from onecat.experiments.report import moment
from onecat.experiments.results import ResultFile, read_experiment
from onecat.experiments.running import Design as RunDesign
from onecat.experiments.running import block_sentence, planned
from tests.unit.experiments.simulated import SimulatedDriver


def request(start: float, seconds: float, error: str | None = None) -> Request:
    return Request(0, start, 8, 4, None if error else 0.1, seconds, (), error)


def block(*requests: Request) -> Block:
    seconds = max((each.start + each.end_to_end for each in requests), default=0.0)
    return Block(0, "chat", "2026-07-28T10:00:00Z", seconds, requests, Arrivals(8), Workload())


def test_all_levels_in_each_repetition_with_requests_of_its_own() -> None:
    levels = (Arrivals(1), Arrivals(8))
    blocks = planned(RunDesign(Workload(requests=20, seed=5), levels, repetitions=2, warm_up=3))
    assert [(each.number, each.arrivals.concurrency, each.warm_up) for each in blocks] == [
        (0, 1, True), (1, 1, False), (2, 8, True), (3, 8, False), (4, 1, False), (5, 8, False),
    ]  # fmt: skip
    assert [each.workload.seed for each in blocks if not each.warm_up] == [5, 5, 6, 6]
    assert {each.workload.requests for each in blocks if each.warm_up} == {3}
    assert not {each.workload.seed for each in blocks if each.warm_up} & {5, 6}


def test_a_line_about_a_block() -> None:
    text = block_sentence(block(request(0, 1), request(0, 2), request(1, 1, "timed-out")))
    assert text == "2 answered in 2.0 s, 4.0 output tokens/s, 1 failed (timed-out)"


def test_calm_is_where_95_of_100_requests_lie() -> None:
    calm = calm_of([request(0, number / 100) for number in range(1, 101)])
    assert calm is not None
    assert (calm.n, calm.low, calm.high) == (100, 0.03, 0.98)
    few = calm_of([request(0, 0.2), request(0, 0.1), request(0, 9.0, "timed-out")])
    assert few is not None
    assert (few.n, few.low, few.high) == (2, 0.1, 0.2)
    assert calm_of([request(0, 9.0, "timed-out")]) is None


def test_as_many_requests_are_prepared_as_could_be_answered() -> None:
    design = Design(Workload(), concurrency=100, seconds=30)
    assert requests_for(design, Calm(40, 1.0, 0.5, 2.0)) == 9000
    assert requests_for(design, Calm(40, 600.0, 600.0, 600.0)) == 200
    assert requests_for(design, Calm(40, 1e-3, 1e-4, 1e-2)) == 50_000
    assert requests_for(design, None) == 200


def test_what_is_owed_counts_from_the_end_of_the_burst() -> None:
    assert owed_seconds(block(request(0, 2), request(29, 6)), 30.0) == pytest.approx(5.0)
    assert owed_seconds(block(request(0, 2)), 30.0) == 0.0
    assert owed_seconds(block(), 30.0) == 0.0


def test_a_single_request_is_calm_when_it_is_no_slower() -> None:
    calm = Calm(40, 1.0, 0.5, 2.0)
    assert is_calm(request(0, 2.0), calm)
    assert is_calm(request(0, 0.1), calm)
    assert not is_calm(request(0, 2.1), calm)
    assert not is_calm(request(0, 0.1, "gateway"), calm)


class Late(SimulatedDriver):
    """It tells of the burst 20 s after the last answer, as one does that has a million tokens to count."""

    clock = datetime(2026, 7, 28, 10, tzinfo=timezone.utc).timestamp()

    def run(self, endpoint: Endpoint, workload: Workload, arrivals: Arrivals, **asked: Any) -> Block:
        number = 4 if asked.get("stop_after") else workload.requests
        sent = super().run(endpoint, replace(workload, requests=number), arrivals, **asked)
        began, self.clock = self.clock, self.clock + sent.seconds + (20 if asked.get("stop_after") else 0)
        return replace(sent, started_at=datetime.fromtimestamp(began, timezone.utc).isoformat())


def test_recovery_counts_from_the_end_of_the_burst_by_the_clock_of_what_sends(tmp_path: Path) -> None:
    design = Design(Workload(seed=3), concurrency=2, seconds=1.0, calm_requests=4, warm_up=0)
    path = tmp_path / "burst.jsonl"
    with ResultFile.create(path, "burst", Environment("0", "here", {}, {}), {}) as file:
        found = run_burst(Late(lambda label: 1.0), Endpoint("chat", "http://x", "m"), design, file, lambda line: None)
    calm, burst, recovery = read_experiment(path).blocks
    assert (calm.arm, burst.arm, recovery.arm) == ("calm", "burst", "recovery")
    over = moment(burst.started_at) + found.lasted
    assert moment(recovery.started_at) == pytest.approx(over, abs=0.001)
    first = recovery.requests[0].start
    assert first == pytest.approx(burst.seconds + 20 - found.lasted, abs=0.01) and first > 20
    assert found.recovery_seconds is not None
    assert found.recovery_seconds == pytest.approx(recovery.requests[-1].start, abs=1e-5)
    assert found.recovery_seconds < found.waited_seconds


def test_the_verdict_on_a_burst() -> None:
    design = Design(Workload(), concurrency=10, seconds=5)
    requests = [request(number / 10, 1.0) for number in range(48)] + [request(1, 60, "timed-out")] * 2
    found = outcome(design, Calm(40, 1, 0.5, 1.5), block(*requests), 5.0, 1.2, 3.5, 3.6, ran_out=False)
    assert (found.sent, found.answered, found.timed_out, found.errors) == (50, 48, 2, {"timed-out": 2})
    assert found.sentence == "10 at once for 5 s: 50 sent, 2 failed, P99 of the answered 1.00 s; as before after 3.5 s"
    assert found.document()["verdict"] == "recovered"
    never = outcome(design, Calm(40, 1, 0.5, 1.5), block(*requests), 5.0, 1.2, None, 120.0, ran_out=False)
    assert never.document()["verdict"] == "not-recovered"
    assert never.sentence.endswith("not as before within 120 s")
    unknown = outcome(design, None, block(*requests), 5.0, 1.2, None, 1.2, ran_out=True)
    assert "not known" in unknown.sentence
    assert "prepared requests were sent" in unknown.notes[0]
