"""Whole checkpoints as their publishers' configurations describe them: nothing is said of what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import describe, read_quantization
from onecat.checkpoints.inspection import described
from onecat.checkpoints.quantization.storage import stored_tensors
from onecat.checkpoints.sources import Source

CONFIGS = Path(__file__).parents[4] / "shared" / "fixtures" / "config"
NAMES = sorted(path.stem for path in CONFIGS.glob("config_*.json"))

pytestmark = pytest.mark.skipif(not NAMES, reason="the shared fixtures are not here")


def documents(name: str) -> dict[str, dict[str, Any]]:
    paths = {"config.json": CONFIGS / f"{name}.json", "hf_quant_config.json": CONFIGS / f"hf_quant_{name}.json"}
    return {key: json.loads(path.read_text(encoding="utf-8")) for key, path in paths.items() if path.is_file()}


@pytest.mark.parametrize("name", NAMES)
def test_tensors_that_are_what_their_configuration_claims_contradict_nothing(name: str) -> None:
    read = documents(name)
    architecture, claim = describe(read["config.json"]), read_quantization(read)
    rows = tuple(
        row
        for weight in architecture.weights
        for row in stored_tensors(
            weight, claim and claim.scheme_for(weight), claim and claim.container, architecture.dtype
        )
    )
    assert rows
    seen = described(Source(name, read, rows, ("model.safetensors",)))
    assert [problem for problem in seen.problems if problem.code != "missing-quant-method"] == []
    assert seen.parameters == architecture.parameters
    assert seen.weight_bytes == described(Source(name, read)).weight_bytes == sum(row.bytes for row in rows)
