"""Plans to ask about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint
from onecat.config import deployment_from, load_profile
from onecat.facts import Facts
from onecat.planner import Plan, make_plan
from tests.unit.planner.examples import LLAMA


@pytest.fixture
def planned() -> Callable[..., Plan]:
    """Plans the Llama checkpoint for a profile; `values` are dotted paths of onecat.yaml."""

    def plan(
        profile: str,
        values: dict[str, Any] | None = None,
        checkpoint: Checkpoint = LLAMA,
        facts: Facts | None = None,
        **command_line: Any,
    ) -> Plan:
        given = {"name": "chat", "profile": profile, "model.path": checkpoint.directory, **(values or {})}
        flags = {name.replace("_", "-"): value for name, value in command_line.items()}
        return make_plan(deployment_from(given), load_profile(profile), checkpoint, facts, flags)

    return plan
