"""Which blocks a comparison measures, in which order, and what it makes of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onecat.errors import OnecatError
from onecat.experiments.ab import Design, Outcome, compare, pairs_of, run_ab
from onecat.experiments.records import Arrivals, Endpoint, Environment, Workload
from onecat.experiments.result_lines import block_document
from onecat.experiments.results import ResultFile, read_experiment
from onecat.experiments.running import WARM_UP_SEED
from onecat.experiments.speed import METRICS, metric_called
from onecat.render.benchmark_figures import paired_table
from tests.unit.experiments.simulated import SimulatedDriver, block_of

ENVIRONMENT = Environment("0", "here", {}, {})


def design(**changes: Any) -> Design:
    values: dict[str, Any] = {
        "workload": Workload(requests=6, seed=7),
        "arrivals": Arrivals(concurrency=2),
        "metric": "per-token",
        "pairs": 8,
    }
    return Design(**{**values, **changes})


def run(path: Path, driver: SimulatedDriver, wanted: Design, is_new: bool = False) -> Outcome:
    opened = ResultFile.open_to_resume(path) if path.exists() else ResultFile.create(path, "ab", ENVIRONMENT, {})
    with opened as file:
        return run_ab(driver, wanted, lambda arm: (Endpoint(arm, "http://x", "m"), is_new), file)


def test_blocks_alternate_and_both_of_a_pair_send_the_same(tmp_path: Path) -> None:
    driver = SimulatedDriver(lambda label: 1.0)
    outcome = run(tmp_path / "r.jsonl", driver, design(warm_up=3))
    assert outcome.verdict == "no-difference" and "could be up to" in outcome.sentence
    warm = [call for call in driver.calls if call[3]]
    assert [(arm, seed) for _, arm, seed, _ in warm] == [("A", 7 + WARM_UP_SEED), ("B", 7 + WARM_UP_SEED)]
    measured = [(arm, seed) for _, arm, seed, is_warm in driver.calls if not is_warm]
    assert measured == [(arm, 7 + pair) for pair in range(8) for arm in ("AB" if pair % 2 == 0 else "BA")]


def test_each_start_is_warmed_up(tmp_path: Path) -> None:
    driver = SimulatedDriver(lambda label: 1.0)
    run(tmp_path / "r.jsonl", driver, design(warm_up=3), is_new=True)
    assert [call[3] for call in driver.calls] == [True, False] * 16


@pytest.mark.parametrize(("speed", "verdict", "word"), [(1.05, "slower", "slower by "), (0.95, "faster", "faster by ")])
def test_a_difference_is_found_and_told(tmp_path: Path, speed: float, verdict: str, word: str) -> None:
    driver = SimulatedDriver(lambda label: speed if label == "B" else 1.0, noise=0.005)
    outcome = run(tmp_path / "r.jsonl", driver, design(pairs=10))
    assert outcome.verdict == verdict and f"B is {word}" in outcome.sentence and "95 % interval" in outcome.sentence
    assert outcome.low is not None and outcome.high is not None and outcome.percent is not None
    assert outcome.low < outcome.percent < outcome.high
    assert outcome.percent == pytest.approx(100 * (1 - speed), abs=0.7)
    # Throughput says the same with the other sign.
    assert outcome.comparisons["throughput"].word == {"slower": "lower", "faster": "higher"}[verdict]
    read = read_experiment(tmp_path / "r.jsonl")
    assert read.finished_at and read.verdict is not None and read.verdict["sentence"] == outcome.sentence


def test_stops_early_only_where_it_looks(tmp_path: Path) -> None:
    driver = SimulatedDriver(lambda label: 1.5 if label == "B" else 1.0, noise=0.001)
    assert run(tmp_path / "early.jsonl", driver, design(pairs=20)).pairs == 10
    assert run(tmp_path / "all.jsonl", driver, design(pairs=20, stops_early=False)).pairs == 20


def test_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    def driver(stop_after: int | None) -> SimulatedDriver:
        return SimulatedDriver(lambda label: 1.0, stop_after=stop_after)

    path = tmp_path / "r.jsonl"
    first = driver(5)
    with pytest.raises(KeyboardInterrupt):
        run(path, first, design())
    second = driver(None)
    outcome = run(path, second, design())
    # The third pair was begun: A may have its requests in a cache, so others are sent, in the order that was its turn.
    assert [(arm, seed) for _, arm, seed, _ in second.calls[:4]] == [("A", 10), ("B", 10), ("B", 11), ("A", 11)]
    assert len(second.calls) == 12
    assert outcome.pairs == 8
    with pytest.raises(OnecatError, match="finished"):
        run(path, driver(None), design())


def test_requests_of_a_block_that_was_cut_off_are_not_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with ResultFile.create(path, "ab", ENVIRONMENT, {}) as file:
        for warm_up, seed in ((True, 7 + WARM_UP_SEED), (False, 7)):
            block = block_of({0: 1.0}, arm="A", seed=seed, warm_up=warm_up)
            file.add_sample({"time": "2026-01-01T00:00:00Z", "cut_short": block_document(block)})
    driver = SimulatedDriver(lambda label: 1.0)
    run(path, driver, design())
    assert [(arm, seed) for _, arm, seed, _ in driver.calls[:3]] == [("A", 8), ("B", 8), ("B", 9)]


def test_of_a_pair_begun_twice_the_later_blocks_count() -> None:
    blocks = [
        block_of({0: 9.0}, number=0, arm="A", seed=1),
        block_of({0: 1.0}, number=1, arm="A", seed=1),
        block_of({0: 2.0}, number=2, arm="B", seed=1),
        block_of({0: 3.0}, number=3, arm="B", seed=2, warm_up=True),
        block_of({0: 3.0}, number=4, arm="B", seed=2),
    ]
    (pair,) = pairs_of(blocks)
    assert (pair.a.number, pair.b.number, pair.a_first) == (1, 2, True)


def test_a_server_that_fails_requests_is_not_called_fast(tmp_path: Path) -> None:
    driver = SimulatedDriver(lambda label: 0.5 if label == "B" else 1.0, failing={"B": 2})
    outcome = run(tmp_path / "r.jsonl", driver, design())
    assert outcome.verdict == "not-comparable"
    assert outcome.sentence == "not comparable: A failed 0 of 48 requests, B 16 of 64"


def test_nor_is_it_where_both_fail_alike(tmp_path: Path) -> None:
    """Two of five requests of either: what is answered in half the time says nothing of a server that works."""
    driver = SimulatedDriver(lambda label: 0.5 if label == "B" else 1.0, failing={"A": 4, "B": 4})
    outcome = run(tmp_path / "r.jsonl", driver, design())
    assert outcome.verdict == "not-comparable"
    assert outcome.sentence == "not comparable: A failed 32 of 80 requests, B 32 of 80"


@pytest.mark.parametrize(("failed", "requests", "verdict"), [(2, 10, "faster"), (3, 10, "not-comparable"),
                                                            (4, 60, "faster"), (5, 60, "not-comparable")])  # fmt: skip
def test_few_failures_are_no_obstacle(failed: int, requests: int, verdict: str) -> None:
    """Less than 3, and less than 1 % of 160 or 485 requests of each."""
    blocks = []
    for number in range(16):
        arm, pair = "AB"[number % 2], number // 2
        times = {each: (0.5 if arm == "B" else 1.0) + 0.001 * (pair % 3) for each in range(requests)}
        blocks.append(block_of(times, number=number, arm=arm, seed=pair, failed=failed if pair == 0 else 0))
    assert compare(blocks, "per-token").verdict == verdict


@pytest.mark.parametrize(
    ("speed", "smallest", "verdict"),
    [(1.0, 1.0, "same"), (0.996, 1.0, "same"), (0.996, 0.1, "faster"), (0.996, 0.0, "faster"), (0.98, 1.0, "faster")],
)
def test_a_difference_too_small_to_matter_is_no_reason_to_act(
    tmp_path: Path, speed: float, smallest: float, verdict: str
) -> None:
    driver = SimulatedDriver(lambda label: speed if label == "B" else 1.0, noise=0.0005)
    outcome = run(tmp_path / "r.jsonl", driver, design(pairs=10, smallest=smallest))
    assert outcome.verdict == verdict
    if verdict == "same":
        assert outcome.sentence.startswith("no difference that matters: B is within 1 % of A, ")
        assert outcome.percent == pytest.approx(100 * (1 - speed), abs=0.1)
        # No table beside that verdict calls one of them faster.
        table = paired_table(read_experiment(tmp_path / "r.jsonl"))
        assert table is not None and {row.cells[1].text for row in table.rows} == {"the same"}


def test_nothing_is_called_the_same_where_a_difference_that_matters_is_possible(tmp_path: Path) -> None:
    driver = SimulatedDriver(lambda label: 1.0, noise=0.02)
    assert run(tmp_path / "r.jsonl", driver, design(pairs=10)).verdict == "no-difference"


def test_two_that_differ_by_as_much_as_matters_are_seldom_called_the_same() -> None:
    """True difference 1 %, the smallest that matters 1 %: at most the chance that the interval allows, 1 %."""
    random, called = np.random.default_rng(5), 0
    for _ in range(400):
        blocks = []
        for pair in range(8):
            for arm, seconds in (("A", 1.0), ("B", 1.01)):
                value = seconds * math.exp(random.normal(0, 0.003))
                blocks.append(block_of({0: value}, number=len(blocks), arm=arm, seed=pair))
        called += compare(blocks, "per-token").verdict == "same"
    assert called <= 400 * 0.03


def test_too_few_pairs_have_no_verdict() -> None:
    outcome = compare([block_of({0: 1.0}, number=n, arm="AB"[n % 2], seed=n // 2) for n in range(4)], "ttft")
    assert outcome.verdict == "undecided" and "2 pairs" in outcome.sentence
    assert compare([], "ttft").verdict == "undecided"


@pytest.mark.parametrize("name", METRICS)
def test_each_metric_sees_a_server_that_takes_twice_as_long(name: str) -> None:
    metric = metric_called(name)
    one, other = (metric.values(block_of({0: seconds, 1: 3 * seconds})) for seconds in (1.0, 2.0))
    factor = 0.5 if metric.higher_is_better else 2.0
    assert {index: value * factor for index, value in one.items()} == pytest.approx(dict(other))


def test_a_metric_that_there_is_not() -> None:
    with pytest.raises(OnecatError, match="no metric speed") as error:
        metric_called("speed")
    assert "throughput" in str(error.value.expected)


def test_a_server_that_answers_nothing_ends_it_at_once(tmp_path: Path) -> None:
    driver = SimulatedDriver(lambda label: 1.0, failing={"B": 3})
    wanted = design(workload=Workload(requests=0, seed=1))
    with pytest.raises(OnecatError, match=r"endpoint B answered none of 3 requests \(timeout\)"):
        run(tmp_path / "r.jsonl", driver, wanted)
    assert [arm for _, arm, _, _ in driver.calls] == ["A", "B"]
