"""Which points a sweep measures, which it gives up, and what it ends in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from onecat.config import load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.experiments.records import Arrivals, Endpoint, Environment, Objectives, Workload
from onecat.experiments.results import ResultFile, read_experiment
from onecat.experiments.suggestion import profile_override
from onecat.experiments.sweep import REFERENCE, Design, Knob, Settings, State, design_from, label_of, run_sweep
from tests.testbed.command import Onecat
from tests.unit.experiments.simulated import SimulatedDriver

SEQS = Knob("max-num-seqs", ("8", "16", "32", "64"))
TOKENS = Knob("max-num-batched-tokens", ("1024", "2048"))


def design(*knobs: Knob, **changes: Any) -> Design:
    values: dict[str, Any] = {
        "workload": Workload(requests=6, seed=1),
        "arrivals": Arrivals(concurrency=4),
        "metric": "throughput",
    }
    return Design(knobs, **{**values, **changes})


class Bed:
    """Points with known speeds. slow: points that take longer or shorter than what serves, by label."""

    def __init__(self, path: Path, seconds: Mapping[str, float], broken: tuple[str, ...] = (), **driver: Any) -> None:
        self.path = path
        self.driver = SimulatedDriver(lambda label: seconds.get(label, 1.0), **driver)
        self.starts: list[str] = []
        self._broken = broken

    def run(self, wanted: Design) -> State:
        environment = Environment("0", "here", {}, {})
        opened = (
            ResultFile.open_to_resume(self.path)
            if self.path.exists()
            else ResultFile.create(self.path, "sweep", environment, {}, wanted.objectives)
        )
        with opened as file:
            return run_sweep(self.driver, wanted, self._switch, file)

    def _switch(self, settings: Settings) -> Endpoint:
        label = label_of(settings)
        self.starts.append(label)
        if label in self._broken:
            raise OnecatError("out of memory", code=ExitCode.ROLLED_BACK)
        return Endpoint(label, "http://x", "m")


def test_the_fastest_is_found_and_confirmed(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "r.jsonl", {"max-num-seqs=32": 0.8, "max-num-seqs=64": 0.9})
    state = bed.run(design(SEQS))
    assert state.best == (("max-num-seqs", "32"),)
    assert state.outcome is not None and state.outcome.verdict == "faster"
    verdict = read_experiment(bed.path).verdict
    assert verdict is not None and verdict["verdict"] == "faster"
    assert verdict["sentence"].startswith("max-num-seqs=32 is faster by ")
    # Two rounds: all four, then two of them; what serves in both; then eight pairs.
    assert len(bed.starts) == 5 + 3 + 16
    assert Counter(bed.starts[:8]) == {
        REFERENCE: 2, "max-num-seqs=32": 2, "max-num-seqs=64": 2, "max-num-seqs=8": 1, "max-num-seqs=16": 1,
    }  # fmt: skip


def test_luck_is_not_taken_for_speed(tmp_path: Path) -> None:
    """All points are as fast as what serves, so some point wins by noise alone; hardly ever is it confirmed."""
    words = Counter()
    for number in range(8):
        bed = Bed(tmp_path / f"{number}.jsonl", {}, noise=0.05)
        bed.run(design(SEQS, TOKENS, workload=Workload(requests=4, seed=1000 * number)))
        verdict = read_experiment(bed.path).verdict
        assert verdict is not None
        words[verdict["verdict"]] += 1
        if verdict["verdict"] == "no-difference":
            assert "leave it" in verdict["sentence"]
    assert words["faster"] == 0 and words["no-difference"] >= 4


def test_nothing_better(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "r.jsonl", {f"max-num-seqs={value}": 1.2 for value in SEQS.values})
    state = bed.run(design(SEQS))
    verdict = read_experiment(bed.path).verdict
    assert state.best == () and verdict is not None and verdict["sentence"].endswith("leave it")
    assert len(bed.starts) == 8


def test_a_point_that_does_not_start_is_left_out(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "r.jsonl", {"max-num-seqs=64": 0.5, "max-num-seqs=16": 0.8}, broken=("max-num-seqs=64",))
    state = bed.run(design(SEQS, confirming=0))
    assert state.best == (("max-num-seqs", "16"),)
    assert bed.starts.count("max-num-seqs=64") == 1
    verdict = read_experiment(bed.path).verdict
    assert verdict is not None and verdict["verdict"] == "not-confirmed"
    assert "max-num-seqs=64: out of memory" in verdict["sentences"]


def test_where_no_point_starts_what_serves_is_not_measured_again(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "r.jsonl", {}, broken=tuple(f"max-num-seqs={value}" for value in SEQS.values))
    assert bed.run(design(SEQS)).best == ()
    assert bed.starts.count(REFERENCE) == 1


def test_the_reference_must_start(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="out of memory"):
        Bed(tmp_path / "r.jsonl", {}, broken=(REFERENCE,)).run(design(SEQS))


def test_a_sweep_that_ended_because_nothing_was_answered_goes_on_with_that_block(tmp_path: Path) -> None:
    """What serves is measured anew: else no point could be compared, and nothing would seem better."""
    speeds = {"max-num-seqs=32": 0.5}
    broken = Bed(tmp_path / "r.jsonl", speeds, failing={REFERENCE: 6})
    with pytest.raises(OnecatError, match="answered none of 6 requests"):
        broken.run(design(SEQS, workload=Workload(requests=0, seed=1)))
    bed = Bed(tmp_path / "r.jsonl", speeds)
    assert bed.run(design(SEQS, confirming=0)).best == (("max-num-seqs", "32"),)
    assert bed.starts[0] == REFERENCE


def test_a_point_that_misses_the_objectives_goes_however_fast(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "r.jsonl", {"max-num-seqs=64": 0.5}, failing={"max-num-seqs=64": 20})
    state = bed.run(design(SEQS, objectives=Objectives(end_to_end_ms=60_000), confirming=0))
    assert all(each.rounds == 1 for each in state.standings if each.label == "max-num-seqs=64")
    dropped = next(each.dropped for each in state.standings if each.label == "max-num-seqs=64")
    assert dropped == "23 % of the requests keep the objectives, and 95 % shall"
    assert state.best != (("max-num-seqs", "64"),)


def test_all_combinations_or_one_knob_after_the_other(tmp_path: Path) -> None:
    speeds = {
        "max-num-seqs=16": 0.8,
        "max-num-seqs=16, max-num-batched-tokens=2048": 0.6,
        "max-num-seqs=8, max-num-batched-tokens=2048": 0.7,
    }
    grid = Bed(tmp_path / "grid.jsonl", speeds)
    assert grid.run(design(SEQS, TOKENS, confirming=0)).best == (
        ("max-num-seqs", "16"),
        ("max-num-batched-tokens", "2048"),
    )
    assert len(set(grid.starts)) == 1 + 8
    single = Bed(tmp_path / "single.jsonl", speeds)
    assert single.run(design(SEQS, TOKENS, confirming=0, grid=False)).best == (
        ("max-num-seqs", "16"), ("max-num-batched-tokens", "2048"),
    )  # fmt: skip
    assert len(set(single.starts)) == 1 + 4 + 2


def test_a_knob_that_helps_nothing_keeps_what_the_one_before_won(tmp_path: Path) -> None:
    speeds = {"max-num-seqs=16": 0.7}
    speeds |= {f"max-num-seqs=16, max-num-batched-tokens={value}": 0.9 for value in TOKENS.values}
    bed = Bed(tmp_path / "r.jsonl", speeds)
    assert bed.run(design(SEQS, TOKENS, confirming=0, grid=False)).best == (("max-num-seqs", "16"),)


@pytest.mark.parametrize("blocks", [0, 1, 5, 7, 12])
def test_goes_on_where_it_was_cut_off(tmp_path: Path, blocks: int) -> None:
    speeds = {"max-num-seqs=32": 0.8}
    whole = Bed(tmp_path / "whole.jsonl", speeds, broken=("max-num-seqs=8",))
    expected = whole.run(design(SEQS))
    cut = Bed(tmp_path / "cut.jsonl", speeds, broken=("max-num-seqs=8",), stop_after=blocks)
    with pytest.raises(KeyboardInterrupt):
        cut.run(design(SEQS))
    cut.driver.stop_after = None
    found = cut.run(design(SEQS))
    assert found.best == expected.best and found.outcome is not None
    # Nothing is measured twice.
    assert len(cut.driver.calls) == len(whole.driver.calls)
    assert cut.starts.count("max-num-seqs=8") == 1


@pytest.mark.parametrize(
    "settings",
    [
        (("max-num-seqs", "64"), ("gpu-memory-utilization", "0.85")),
        (("enable-prefix-caching", "false"), ("kv-cache-dtype", "fp8")),
    ],
)
def test_the_suggested_profile_is_valid(tmp_path: Path, settings: tuple[tuple[str, str], ...]) -> None:
    text = profile_override(
        load_profile("cpu"), "cpu", settings, "faster by 4.2 %: 95 % interval 3.1 to 5.3 %", "sweep-demo.jsonl"
    )
    path = tmp_path / "tuned.yaml"
    path.write_text(text)
    onecat = Onecat(tmp_path / "home", tmp_path / "cache")
    assert "is valid" in onecat("profile", "validate", path).expect(0).stdout
    made = load_profile(str(path))
    values = {each.arg: each.value for each in made.launch.args}
    assert made.name == "cpu-tuned" and str(values[settings[0][0]]).lower() == settings[0][1]
    assert made.engine == load_profile("cpu").engine


def test_a_design_is_read_back(tmp_path: Path) -> None:
    wanted = design(SEQS, TOKENS, grid=False, objectives=Objectives(ttft_ms=200))
    assert design_from(json.loads(json.dumps(asdict(wanted)))) == wanted
