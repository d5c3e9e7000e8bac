"""Logs in which one fault drags others after it: the cause is told, what follows from it is not.

The files are written after logs as they are reported, with the forms of lines that the programs have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from onecat.observe import diagnose

COMPOSITE = Path(__file__).parents[2] / "fixtures" / "logs" / "composite"
EXPECTED: dict[str, Any] = yaml.safe_load((COMPOSITE / "expected.yaml").read_text(encoding="utf-8"))
STANDINGS = {"consequences": "consequence", "earlier": "earlier", "harmless": "harmless"}


def lines_of(name: str) -> list[str]:
    return (COMPOSITE / f"{name}.log").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", EXPECTED)
def test_causes_are_told_and_what_follows_from_them_is_known_as_such(name: str) -> None:
    expected = EXPECTED[name]
    diagnoses = diagnose(lines_of(name), every=True)
    assert [each.signature for each in diagnoses if each.standing == "cause"] == expected["causes"]
    for field, standing in STANDINGS.items():
        found = {each.signature for each in diagnoses if each.standing == standing}
        assert set(expected.get(field, ())) <= found, field
    for words in expected.get("says", ()):
        assert words in diagnoses[0].cause


@pytest.mark.parametrize("name", EXPECTED)
def test_without_being_asked_only_causes_are_told(name: str) -> None:
    assert [each.signature for each in diagnose(lines_of(name))] == EXPECTED[name]["causes"]


def test_every_log_has_an_expectation() -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in COMPOSITE.glob("*.log"))
