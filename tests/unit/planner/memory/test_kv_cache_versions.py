"""Each version's rules against what the manager of that version answered for made-up models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat.planner.memory.kv_cache import kv_capacity
from onecat.planner.memory.stages import stage_layers
from tests.unit.planner.memory.kv_questions import QUESTIONS

CAPTURED = Path(__file__).parents[3] / "fixtures" / "memory" / "divisions.json"
VERSIONS: dict[str, dict[str, dict[str, Any]]] = json.loads(CAPTURED.read_text(encoding="utf-8"))["versions"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_divides_layers_as_its_own_manager_did(version: str) -> None:
    computed: dict[str, dict[str, Any]] = {}
    for name, answer in VERSIONS[version].items():
        asked = replace(QUESTIONS[name], settings=replace(QUESTIONS[name].settings, engine_version=version))
        stages = stage_layers(asked.architecture, asked.settings.pipeline_parallel)
        found = kv_capacity(asked.architecture, asked.settings, stages, asked.available)
        assert found is not None
        if "largest" in answer:
            computed[name] = {"largest": min(found.largest_max_model_len, asked.settings.max_model_len)}
        else:
            computed[name] = {
                "blocks": found.blocks,
                "groups": found.groups,
                "tokens": found.tokens,
                "concurrency": f"{found.max_concurrency:.2f}",
            }
    assert computed == VERSIONS[version]
