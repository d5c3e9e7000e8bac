"""The kept logs of real failures, and what a diagnosis of each must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

FAILURES = Path(__file__).parent / "fixtures" / "logs" / "failures"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FAILURES / "expected.yaml").read_text(encoding="utf-8"))


def faults_of(diagnoses: Sequence[Mapping[str, Any]], expected: Mapping[str, Any]) -> list[str]:
    """What is wrong with the diagnoses of a log (as in onecat.diagnose/1); nothing when they are right.

    Parameters:
        expected: `signature` that must come first, or a list of which one must; `says`, words in its cause or fix. No
            other cause may be told beside it.
    """
    if not diagnoses:
        return ["no diagnosis"]
    first = diagnoses[0]
    faults = []
    signatures = expected["signature"] if isinstance(expected["signature"], list) else [expected["signature"]]
    if first["signature"] not in signatures:
        faults.append(f"{first['signature']} comes first, not {' or '.join(signatures)}")
    told = " ".join([first["cause"], *first["fix"]])
    faults += [f"{words!r} is not said in: {told}" for words in expected.get("says", ()) if words not in told]
    others = [each["signature"] for each in diagnoses[1:] if each.get("standing", "cause") == "cause"]
    if others:
        faults.append(f"consequences are told as well: {others}")
    return faults
