"""The public cases: what is expected of each, and what each says where shared/cases is beside the checkout."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = Path(__file__).parents[2] / "shared" / "cases" / "cases.jsonl"
ASSIGNMENT: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "fixtures" / "cases" / "assignment.yaml").read_text(encoding="utf-8")
)["cases"]


@functools.cache
def evidence() -> dict[str, str]:
    """The text of each case by its id; skips the test where the cases are not on this machine."""
    if not CASES.exists():
        pytest.skip("the cases of shared/cases are not on this machine")
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row["raw_evidence"] for row in rows}
