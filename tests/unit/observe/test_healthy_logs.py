"""Logs of servers in which nothing was wrong: fixtures/logs/healthy/SOURCES.md says where each is from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from onecat.observe import Diagnosis, diagnose

HEALTHY = Path(__file__).parents[2] / "fixtures" / "logs" / "healthy"
NAMES = sorted(path.name for path in HEALTHY.glob("*.log"))


def lines_of(name: str) -> list[str]:
    return (HEALTHY / name).read_text(encoding="utf-8").splitlines(keepends=True)


def told(lines: Sequence[str]) -> list[Diagnosis]:
    """What is told of a log as a fault."""
    return [each for each in diagnose(lines) if each.severity != "info"]


@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_log_has_no_diagnosis_of_warn_or_above(name: str) -> None:
    assert [(each.signature, each.evidence[0]) for each in told(lines_of(name))] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_behind_it_is_still_seen(name: str) -> None:
    """A healthy stretch hides nothing that comes after it."""
    fault = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    assert [each.signature for each in told([*lines_of(name), "INFO non-default args: {}\n", fault])] == [
        "cuda.no-kernel-image"
    ]


def test_there_are_at_least_twenty_and_no_two_are_alike() -> None:
    assert len(NAMES) >= 20
    seen = [frozenset(lines_of(name)) for name in NAMES]
    for number, lines in enumerate(seen):
        assert all(len(lines - other) > len(lines) / 4 for other in seen[:number]), NAMES[number]


def test_each_is_named_in_the_sources() -> None:
    sources = (HEALTHY / "SOURCES.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in sources] == []
