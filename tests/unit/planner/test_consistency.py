"""What a plan says of itself holds with the settings that it ends with, whatever the checkpoint, card and requests."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from onecat.checkpoints import Checkpoint, describe
from onecat.planner import Plan, Reason
from onecat.planner.prompts import Prompts, parse_distribution
from onecat.planner.sizing import SHORTEST
from tests.unit.planner.test_layouts import for_cards

FOLDER = Path(__file__).parents[4] / "shared/fixtures/config"
CONFIGURATIONS = sorted(FOLDER.glob("*.json"))
CARDS = (("h100", 1), ("rtx-3090", 1), ("v100-16g", 2))
REQUESTS = (None, parse_distribution("30%:128,50%:512,20%:2048"), parse_distribution("100%:16000:2000"))
CASES = [
    pytest.param(path, *cards, REQUESTS[(row + column) % 3], id=f"{path.stem}-{cards[0]}-{(row + column) % 3}")
    for row, path in enumerate(CONFIGURATIONS)
    for column, cards in enumerate(CARDS)
]
"""Each checkpoint with each card, and in turn with each kind of requests."""

pytestmark = pytest.mark.skipif(not CONFIGURATIONS, reason="shared/fixtures is not there")


@pytest.fixture(autouse=True)
def no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would make a model fit takes most of the time, and is held by tests of its own."""
    monkeypatch.setattr("onecat.planner.refusals.memory.nearest_changes", lambda *_: ())


@cache
def checkpoint(path: Path) -> Checkpoint:
    described = describe(json.loads(path.read_text()))
    return Checkpoint("/srv/models/other", described, weight_bytes=2 * described.parameters, measured=False)


def reason(plan: Plan, name: str) -> Reason | None:
    return next((each for each in plan.reasons if each.arg == f"--{name}" and each.origin == "planner"), None)


@pytest.mark.parametrize(("path", "card", "count", "requests"), CASES)
def test_a_plan_does_not_contradict_itself(path: Path, card: str, count: int, requests: Prompts | None) -> None:
    plan = for_cards(card, count, checkpoint(path), prompts=requests)
    if plan.fits is None:
        assert plan.unknown
        return
    largest, possible = plan.largest_max_model_len, checkpoint(path).architecture.max_position_embeddings
    assert largest is not None and plan.max_model_len is not None
    length = reason(plan, "max-model-len")
    certain = not plan.estimated and not plan.refusals
    if certain and largest >= SHORTEST:
        assert plan.fits and plan.max_model_len <= largest
    if length is not None:
        assert possible is not None and largest < possible
        assert int(length.value) == plan.max_model_len <= largest
        assert f"the longest that fits is {largest}," in length.why
        others = [each.largest_max_model_len or 0 for each in plan.candidates]
        assert ("no layout" in length.why) == (bool(others) and max(others) < possible)
    seqs = reason(plan, "max-num-seqs")
    if seqs is not None:
        assert int(seqs.value) == plan.assumed["max_num_seqs"]
        told = re.search(r"KV cache of ([\d,]+) tokens holds (\d+) of them", seqs.why)
        assert told is not None and int(told[1].replace(",", "")) == plan.kv_tokens
        assert int(seqs.value) <= max(1, int(told[2]))
    batched = reason(plan, "max-num-batched-tokens")
    if batched is not None:
        assert int(batched.value) == plan.assumed["max_num_batched_tokens"]
        assert f"beside up to {plan.assumed['max_num_seqs']} answers" in batched.why
    eager = reason(plan, "enforce-eager")
    if eager is not None:
        assert not plan.assumed["cuda_graphs"] and f"in place of {largest};" in eager.why
    for each in plan.candidates:
        if each.layout == plan.layout:
            assert each.largest_max_model_len == largest
