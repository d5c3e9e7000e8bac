"""What onecat computes for an H200, held to what real vLLM 0.27.1 logged there at its default utilisation."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

from onecat.planner.memory import Device, Estimate, estimate
from tests.unit.planner.memory.examples import GIB, checkpoint, settings

RUNS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[3] / "fixtures" / "memory" / "h200.yaml").read_text(encoding="utf-8")
)
CARD = Device("NVIDIA H200", int(139.8 * GIB), 0, 90)
HELD = sorted(name for name, run in RUNS.items() if "outside" not in run)


def computed(run: dict[str, Any]) -> Estimate:
    model = checkpoint(run["config"])
    flags = {name.replace("-", "_"): value for name, value in run["flags"].items()}
    asked = settings(model, CARD, "0.27.1", **flags)
    return estimate(model, [CARD] * asked.tensor_parallel, asked)


@pytest.mark.parametrize("name", HELD)
def test_tokens_are_within_three_percent_of_the_log(name: str) -> None:
    found, logged = computed(RUNS[name]), RUNS[name]["logged"]
    assert found.capacity is not None
    assert found.capacity.tokens == pytest.approx(logged["tokens"], rel=0.03)
    assert found.per_gpu[0].kv_cache / GIB == pytest.approx(logged["kv"], rel=0.03)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_weights_are_within_one_percent_of_the_log(name: str) -> None:
    found, logged = computed(RUNS[name]), RUNS[name]["logged"]
    assert found.per_gpu[0].weights / GIB == pytest.approx(logged["load"], rel=0.01)


def test_half_of_all_runs_are_within_one_percent() -> None:
    errors = [
        abs(found.capacity.tokens / RUNS[name]["logged"]["tokens"] - 1)
        for name in HELD
        if (found := computed(RUNS[name])).capacity is not None
    ]
    assert len(errors) >= 9
    assert median(errors) < 0.01


@pytest.mark.parametrize("name", sorted(name for name, run in RUNS.items() if "graphs" in run["logged"]))
def test_graphs_are_estimated_to_a_quarter_of_a_gibibyte(name: str) -> None:
    found = computed(RUNS[name]).per_gpu[0].graphs / GIB
    assert found == pytest.approx(RUNS[name]["logged"]["graphs"], abs=0.25)
