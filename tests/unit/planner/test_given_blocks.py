"""`num-gpu-blocks-override`: the engine takes exactly that many blocks, whatever its memory holds.

The figures are those of vLLM 0.27.1's get_kv_cache_configs and BlockPool: blocks of 16 tokens, one of which is kept.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onecat.checkpoints import Checkpoint
from onecat.config import deployment_from, load_profile
from onecat.planner import Plan, make_plan
from onecat.planner.prompts import parse_distribution
from tests.unit.planner.examples import LLAMA
from tests.unit.planner.test_memory_of_plans import LARGE

PlanFor = Callable[..., Plan]


def given(planned: PlanFor, blocks: int, length: int | str = 8192, profile: str = "v100x2-pcie") -> Plan:
    return planned(profile, {"serve.num-gpu-blocks-override": blocks, "serve.max-model-len": length})


def test_a_plan_tells_the_tokens_of_the_blocks_that_are_given(planned: PlanFor) -> None:
    plan, own = given(planned, 1024), planned("v100x2-pcie", {"serve.max-model-len": 8192})
    assert (plan.fits, plan.refusals, plan.kv_tokens, plan.max_concurrency) == (True, (), 1024 * 16, 2.0)
    assert plan.largest_max_model_len == 1023 * 16
    # 32 layers, 8 heads of 128 elements on two cards: 4 heads of keys and of values in float16.
    assert plan.per_gpu[0]["kv_cache_gib"] == pytest.approx(1024 * 16 * 32 * 4 * 128 * 2 * 2 / 2**30, abs=0.001)
    assert own.kv_tokens is not None and own.kv_tokens > 10 * 1024 * 16
    for name in ("weights_gib", "activations_gib", "overhead_gib"):
        assert plan.per_gpu[0][name] == own.per_gpu[0][name]


def test_a_request_has_all_blocks_but_the_one_that_the_engine_keeps(planned: PlanFor) -> None:
    plan = given(planned, 512)
    [refusal] = plan.refusals
    assert (plan.fits, refusal.code, refusal.certain) == (False, "kv-blocks", True)
    assert "is 512, which is 8,192 tokens; max-model-len 8192 needs 513 blocks" in refusal.why
    assert refusal.fix[:2] == ("num-gpu-blocks-override: 513", "max-model-len: 8176")
    assert given(planned, 513).fits
    assert given(planned, 512, 8176).fits


@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_too_few_blocks_for_any_context_are_refused(planned: PlanFor, blocks: int) -> None:
    plan = given(planned, blocks)
    assert [each.code for each in plan.refusals] == ["kv-blocks"]
    assert not plan.fits


def test_the_longest_context_is_that_of_the_blocks_where_the_engine_chooses_it(planned: PlanFor) -> None:
    plan = given(planned, 101, -1)
    assert (plan.fits, plan.max_model_len, plan.kv_tokens) == (True, 1600, 1616)


def test_more_blocks_than_the_card_has_memory_for_are_refused(planned: PlanFor) -> None:
    plan = given(planned, 10**6)
    [refusal] = plan.refusals
    assert (plan.fits, refusal.code) == (False, "kv-blocks")
    assert "takes 976.56 GiB on each card" in refusal.why


def with_prompts(checkpoint: Checkpoint) -> str:
    deployment = deployment_from({"name": "c", "profile": "v100x2-pcie", "model.path": checkpoint.directory})
    plan = make_plan(deployment, load_profile("v100x2-pcie"), checkpoint, prompts=parse_distribution("100%:128"))
    return next(each.why for each in plan.reasons if each.arg == "--max-num-seqs")


def test_a_batch_is_not_said_to_be_chosen_for_prompts_where_nothing_fits() -> None:
    assert with_prompts(LLAMA).startswith("100%:128: a request takes 384 tokens on average")
    assert "is chosen" not in with_prompts(LARGE)
    assert "nothing is left for a KV cache" in with_prompts(LARGE)
