"""The kept logs of real failures. Whether programs still say so: tests/testbed/test_diagnose_real.py."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.observe import diagnose, load_signatures, to_json
from tests.failure_logs import EXPECTED, FAILURES, faults_of


def diagnosed(name: str) -> list[dict[str, Any]]:
    with (FAILURES / f"{name}.log").open(encoding="utf-8") as lines:
        return list(to_json(diagnose(lines))["diagnoses"])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_failure_is_told_first_and_alone(name: str) -> None:
    assert faults_of(diagnosed(name), EXPECTED[name]) == []


def test_every_failure_has_a_log_and_an_expectation() -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in FAILURES.glob("*.log"))


def test_what_onecat_logs_puts_between_lines_is_not_diagnosed_again() -> None:
    """`onecat logs NAME | onecat diagnose -`: advice names other faults, as the words that containers end with."""
    for signature in load_signatures().signatures:
        for mark in ("cause", "gpu1: cause"):
            line = f"onecat: {mark}: {signature.cause} ({signature.id}) -> next: {signature.fix[0]}"
            assert diagnose([line]) == (), line
    assert diagnose(["onecat: server killed by signal 9 (SIGKILL) after 5.0 s"])


def test_a_diagnosis_of_something_else_is_noticed() -> None:
    diagnoses = diagnosed("port-taken")
    assert faults_of(diagnoses, {"signature": "disk.full"})
    assert faults_of(diagnoses, {"signature": "network.port-in-use", "says": ["never said"]})
    assert faults_of([*diagnoses, *diagnosed("disk-full")], {"signature": "network.port-in-use"})
    assert faults_of([], {"signature": "network.port-in-use"})
