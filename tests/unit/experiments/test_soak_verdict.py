"""The verdict on a soak, from readings and requests."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from onecat.experiments.records import Arrivals, Block, Environment, Experiment, Request, Workload
from onecat.experiments.soak import Design, design_document, design_from, seconds_done
from onecat.experiments.soak_verdict import Verdict, duration, minutes_more, verdict_of
from onecat.observe.statistics import Estimate

BEGIN = datetime(2026, 7, 28, tzinfo=timezone.utc)
MIB = 2**20
HOUR = 3600.0


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def soaked(
    hours: float = 4.0,
    memory: Callable[[float], float] = lambda hour: 1000.0,
    failing: int = 0,
    **changes: Any,
) -> Experiment:
    """An experiment of so long, a block and a reading a minute. memory: MiB after so many hours."""
    noise = random.Random(7)
    minutes = round(hours * 60)
    requests = [Request(0, 0.0, 8, 4, 0.1, 0.5) for _ in range(10)]
    blocks = []
    for minute in range(minutes):
        failed = [replace(each, error="gateway") for each in requests[:1]] if minute < failing else []
        blocks.append(
            Block(
                minute,
                "chat",
                at(minute * 60),
                60.0,
                (*failed, *requests[len(failed) :]),
                Arrivals(64, 1.0),
                Workload(),
            )
        )
    samples = [
        {
            "time": at(minute * 60),
            "state": "running",
            "pid": 7,
            "restarts": 0,
            "private_bytes": (memory(minute / 60) + noise.gauss(0, 2)) * MIB,
            "kv_cache_usage": 0.25,
            "waiting": 1.0,
        }
        for minute in range(minutes)
    ]
    experiment = Experiment(
        "x", "soak", at(0), Environment("1", "h", {}, {"": {}}), tuple(blocks), samples=tuple(samples)
    )
    return replace(experiment, **changes)


def judged(experiment: Experiment, hours: float = 4.0) -> Verdict:
    return verdict_of(experiment, Design(Workload(), Arrivals(64, 1.0), hours * HOUR))


def text(verdict: Verdict, name: str) -> str:
    return next(each.text for each in verdict.demands if each.name == name)


def test_a_server_that_stands_it() -> None:
    verdict = judged(soaked())
    assert (verdict.answer, verdict.sentence) == ("passed", "it stood 4 h of load")
    assert "25% used on average" in text(verdict, "KV cache")
    assert verdict.document()["verdict"] == "passed"


def test_a_leak_is_found_and_told_with_its_rate() -> None:
    verdict = judged(soaked(memory=lambda hour: 1000 + 10 * hour))
    assert verdict.answer == "failed"
    assert verdict.sentence == "it did not stand the load: memory"
    (memory,) = [each for each in verdict.demands if each.name == "memory"]
    assert memory.estimate is not None
    assert memory.estimate.low is not None and memory.estimate.high is not None
    assert memory.estimate.low < 10 < memory.estimate.high


def test_growth_within_the_limit_is_told_and_allowed() -> None:
    verdict = judged(soaked(memory=lambda hour: 1000 + hour))  # 2.4 % a day
    assert verdict.answer == "passed"
    assert "MiB an hour" in text(verdict, "memory")


def test_growth_that_is_not_known_well_enough_is_no_pass() -> None:
    """Where readings swing beyond the limit, an hour shows neither a leak nor its absence; a day does."""
    swinging = random.Random(3)
    verdict = judged(soaked(hours=1.0, memory=lambda hour: 1000 + swinging.gauss(0, 60)), hours=1.0)
    (memory,) = [each for each in verdict.demands if each.name == "memory"]
    assert (verdict.answer, memory.kept) == ("undecided", None)
    assert verdict.sentence.endswith("growth of memory is not shown either way")
    assert re.search(r"not shown either way, needs \d+ minutes more$", memory.text)
    again = judged(soaked(hours=24, memory=lambda hour: 1000 + swinging.gauss(0, 60)), hours=24)
    assert again.answer == "passed", text(again, "memory")


@pytest.mark.parametrize(
    ("value", "half", "more"), [(0.0, 8.0, 180), (0.0, 1.0001, 1), (1.0, 8.0, None), (0.999, 8.0, 23940)]
)
def test_how_much_longer_it_takes(value: float, half: float, more: int | None) -> None:
    """Of an hour; the interval shrinks with the time to the power of 3/2: to an eighth in four hours."""
    assert minutes_more(HOUR, Estimate(value, value - half, value + half), 1.0) == more


def test_caches_that_fill_at_the_begin_are_no_leak() -> None:
    assert judged(soaked(memory=lambda hour: 1000 if hour > 0.3 else 700 + 1000 * hour)).answer == "passed"


def test_gpu_memory_is_judged_where_it_is_known() -> None:
    experiment = soaked()
    samples = tuple(
        {**each, "gpu_memory_bytes": [30_000 * MIB, (30_000 + 20 * number) * MIB]}
        for number, each in enumerate(experiment.samples)
    )
    assert judged(replace(experiment, samples=samples)).sentence == "it did not stand the load: GPU memory"


def test_errors_beyond_the_limit() -> None:
    assert judged(soaked(failing=2)).answer == "passed"  # 2 of 2400
    verdict = judged(soaked(failing=5))
    assert verdict.answer == "failed"
    assert text(verdict, "errors").endswith(": gateway 5")


def test_a_restart_and_memory_counts_from_it() -> None:
    experiment = soaked(memory=lambda hour: 1000 + 10 * hour if hour < 1 else 700)
    samples = tuple(
        each if number < 60 else {**each, "pid": 8, "restarts": 1, "last_exit": "killed by signal 9"}
        for number, each in enumerate(experiment.samples)
    )
    verdict = judged(replace(experiment, samples=samples))
    assert verdict.sentence == "it did not stand the load: restarts"
    assert text(verdict, "restarts") == "restarts: 1, the last: killed by signal 9"


def test_a_look_at_which_it_did_not_run() -> None:
    experiment = soaked()
    samples = (*experiment.samples[:-1], {**experiment.samples[-1], "state": "backing-off", "pid": None})
    assert judged(replace(experiment, samples=samples)).answer == "failed"


def test_an_unfinished_one_and_one_that_is_too_short() -> None:
    assert judged(soaked(hours=1), hours=4).answer == "unfinished"
    short = judged(soaked(hours=0.25), hours=0.25)
    assert short.answer == "too-short"
    assert "judged from 30 min on" in text(short, "memory")


def test_a_server_that_is_no_deployment_has_no_memory_to_judge() -> None:
    samples = tuple({"time": at(minute * 60), "process_started": 5.0} for minute in range(240))
    verdict = judged(soaked(samples=samples))
    assert verdict.answer == "passed"
    assert text(verdict, "memory") == "memory: not known"
    again = (*samples[:-1], {**samples[-1], "process_started": 9.0})
    assert judged(soaked(samples=again)).sentence == "it did not stand the load: restarts"


def test_a_block_that_was_cut_short_is_no_reading() -> None:
    experiment = soaked()
    cut = {"time": at(60), "cut_short": {"requests": {}}}
    assert judged(replace(experiment, samples=(*experiment.samples, cut))).answer == "passed"


def test_the_wait_before_a_blocks_first_request_counts_as_load() -> None:
    """Two requests at one in 100 s take 200 s, of which 100 s lie before the first."""
    requests = (Request(0, 0.0, 8, 4, 0.1, 0.5), Request(1, 100.0, 8, 4, 0.1, 2.0))
    block = Block(0, "chat", at(0), 102.0, requests, Arrivals(64, 0.01), Workload(requests=2))
    assert seconds_done([block, replace(block, warm_up=True)]) == 200
    assert seconds_done([replace(block, seconds=230.0)]) == 230
    assert seconds_done([replace(block, arrivals=Arrivals(64))]) == 102


def test_a_design_comes_back_from_its_document() -> None:
    design = Design(Workload(requests=3, chat=True), Arrivals(4, 2.0), 60.0, warm_up=2)
    assert design_from(design_document(design)) == design


@pytest.mark.parametrize(("seconds", "told"), [(45, "45 s"), (300, "5 min"), (9000, "2 h 30 min"), (259200, "72 h")])
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told
