"""What a plan says of memory: whether it fits, what is left, the longest context, and the nearest change that fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint
from onecat.facts import Facts, Gpu, Memory, Nvidia
from onecat.planner import Plan, to_json
from onecat.planner.records import plan_of
from tests.unit.planner.examples import LLAMA, V100, checkpoint_of, llama
from tests.unit.planner.test_layouts import for_cards

GIB = 2**30
LARGE = checkpoint_of(num_hidden_layers=80, hidden_size=8192, intermediate_size=28672, num_attention_heads=64)
"""As Llama 3 70B: 131 GiB of float16 weights."""

MIDDLE = checkpoint_of(num_hidden_layers=16)
"""Its weights fit a card with 16 GB, its whole context does not."""


def busy(*used: int, memory: int = 32 * GIB) -> Facts:
    """A host of V100s on which other processes use so many bytes each."""
    gpus = tuple(
        Gpu(index, V100, compute_capability="7.0", memory_total=memory, memory_used=each)
        for index, each in enumerate(used)
    )
    return Facts("gpu1", nvidia=Nvidia(library_found=True, gpus=gpus))


def codes(plan: Plan) -> list[str]:
    return [each.code for each in plan.refusals]


def test_a_model_that_fits_has_its_parts_told_gpu_by_gpu(planned: Callable[..., Plan]) -> None:
    plan = planned("v100x2-pcie")
    assert (plan.fits, codes(plan), len(plan.per_gpu)) == (True, [], 2)
    for each in plan.per_gpu:
        parts = ("weights_gib", "kv_cache_gib", "activations_gib", "overhead_gib", "free_gib", "other_gib")
        assert sum(each[name] for name in parts) == pytest.approx(each["memory_gib"], abs=0.01)
        assert 7.0 < each["weights_gib"] < 8.0
    assert plan.kv_tokens and plan.max_concurrency and plan.largest_max_model_len == 131072


def test_a_plan_reads_back_as_it_was_written(planned: Callable[..., Plan]) -> None:
    import json

    plan = planned("v100x2-pcie")
    assert to_json(plan_of(json.loads(json.dumps(to_json(plan))))) == to_json(plan)


def test_a_plan_of_an_older_release_still_reads(planned: Callable[..., Plan]) -> None:
    document = to_json(planned("h200"))
    new = ("candidates", "estimated", "assumed", "unknown", "short_of_gib", "max_model_len", "rough_seconds_per_token")
    old = {name: value for name, value in document.items() if name not in new}
    old["refusals"] = [{"code": "layout", "why": "w", "fix": []}]
    assert plan_of(old).refusals[0].certain


def test_weights_above_the_memory_are_refused_with_what_would_fit(planned: Callable[..., Plan]) -> None:
    plan = planned("v100x2-pcie", checkpoint=LARGE)
    [refusal] = plan.refusals
    assert (plan.fits, refusal.code, refusal.certain, plan.kv_tokens) == (False, "memory-weights", True, 0)
    assert "GiB are missing on each card" in refusal.why
    assert any("such cards: tensor-parallel-size" in each for each in refusal.fix)


def test_a_context_above_what_fits_is_refused_with_the_longest_that_does(planned: Callable[..., Plan]) -> None:
    plan = planned("v100-16g", {"serve.max-model-len": 131072}, MIDDLE)
    [refusal] = plan.refusals
    assert refusal.code == "memory-context"
    longest = plan.largest_max_model_len
    assert longest is not None and 1024 < longest < 131072
    assert f"the longest context that fits is {longest}" in refusal.why
    assert refusal.fix[0].startswith(f"max-model-len: {longest} ")
    assert planned("v100-16g", {"serve.max-model-len": longest}, MIDDLE).fits
    assert not planned("v100-16g", {"serve.max-model-len": longest + 16}, MIDDLE).fits


def test_auto_takes_the_longest_that_fits_and_says_so(planned: Callable[..., Plan]) -> None:
    plan = planned("v100-16g", {}, MIDDLE)
    assert (plan.fits, codes(plan)) == (True, [])
    assert plan.max_model_len == plan.largest_max_model_len
    assert any("The longest context that fits is" in each for each in plan.warnings)


def test_a_change_that_is_advised_makes_it_fit(planned: Callable[..., Plan]) -> None:
    flags: dict[str, Any] = {"serve.max-model-len": 131072, "serve.tensor-parallel-size": 1}
    tight = planned("a100x2-80g", flags | {"serve.gpu-memory-utilization": 0.3}, LLAMA)
    assert codes(tight) == ["memory-context"]
    assert any("gpu-memory-utilization: 0.95" in each for each in tight.refusals[0].fix)
    assert planned("a100x2-80g", flags | {"serve.gpu-memory-utilization": 0.95}, LLAMA).fits


@pytest.mark.parametrize(("profile", "advised"), [("h200", True), ("a100x2-80g", False)])
def test_an_fp8_cache_is_advised_only_where_the_card_has_one(
    planned: Callable[..., Plan], profile: str, advised: bool
) -> None:
    values = {"serve.gpu-memory-utilization": 0.2, "serve.tensor-parallel-size": 1, "serve.max-model-len": 65536}
    checkpoint = LLAMA
    plan = planned(profile, values | ({"serve.gpu-memory-utilization": 0.17} if advised else {}), checkpoint)
    assert codes(plan) in (["memory-context"], ["memory-weights"])
    assert any("kv-cache-dtype: fp8" in each for each in plan.refusals[0].fix) is advised


def test_a_shortage_within_the_estimates_error_is_refused_by_plan_and_tried_by_up(
    planned: Callable[..., Plan],
) -> None:
    base = planned("v100-16g", {"serve.max-model-len": 131072}, MIDDLE)
    assert base.largest_max_model_len is not None
    close = planned("v100-16g", {"serve.max-model-len": base.largest_max_model_len + 64}, MIDDLE)
    assert [each.certain for each in close.refusals] == [False]
    assert [each.certain for each in base.refusals] == [True]


def test_sizes_that_are_estimated_are_warned_of_and_not_refused(planned: Callable[..., Plan]) -> None:
    guessed = replace(LARGE, architecture=LARGE.architecture.replaced(estimated="an unknown architecture"))
    plan = planned("v100x2-pcie", checkpoint=guessed)
    assert (plan.fits, codes(plan)) == (False, [])
    assert any("an unknown architecture" in each for each in plan.warnings)
    assert any("By the estimate the model does not fit" in each for each in plan.warnings)


def test_a_cpu_needs_room_for_one_request_in_its_kv_cache(planned: Callable[..., Plan]) -> None:
    assert planned("cpu", {}, llama(small=True)).fits
    plan = planned("cpu", {"serve.max-model-len": 131072}, llama(small=True))
    assert codes(plan) == ["memory-context"]
    assert any("VLLM_CPU_KVCACHE_SPACE" in each for each in plan.refusals[0].fix)
    wider = {"serve.max-model-len": 131072, "env.VLLM_CPU_KVCACHE_SPACE": "8"}
    assert planned("cpu", wider, llama(small=True)).fits


def test_the_memory_of_a_host_that_nobody_looked_at_is_not_made_up(planned: Callable[..., Plan]) -> None:
    [host] = planned("cpu", {}, llama(small=True)).per_gpu
    assert (host["memory_gib"], host["budget_gib"], host["free_gib"], host["kv_cache_gib"]) == (None, None, None, 1.0)
    [host] = planned("cpu", {}, llama(small=True), Facts("box", memory=Memory(total=64 * GIB))).per_gpu
    assert host["memory_gib"] == 64.0


def test_a_cpu_without_enough_memory_is_warned_of_and_not_refused(planned: Callable[..., Plan]) -> None:
    facts = Facts("box", memory=Memory(total=8 * GIB))
    plan = planned("cpu", {}, LLAMA, facts)
    assert codes(plan) == []
    assert any("processes of this host may use 8.0 GiB" in each for each in plan.warnings)
    roomy = planned("cpu", {}, LLAMA, Facts("box", memory=Memory(total=64 * GIB)))
    assert not any("processes of this host may use" in each for each in roomy.warnings)


def test_memory_of_other_processes_is_told_and_changes_no_argument(planned: Callable[..., Plan]) -> None:
    free, taken = planned("v100x2-pcie", facts=busy(0, 0)), planned("v100x2-pcie", facts=busy(0, 20 * GIB))
    assert taken.server_args == free.server_args
    assert codes(taken) == []
    assert [each["other_gib"] for each in taken.per_gpu] == [0.0, 20.0]
    assert any("GPU 1: other processes use 20.0 GiB" in each for each in taken.warnings)
    assert not any("other processes" in each for each in free.warnings)


def test_free_cards_are_counted_first(planned: Callable[..., Plan]) -> None:
    plan = planned("v100x2-pcie", {"serve.tensor-parallel-size": 1}, facts=busy(20 * GIB, 0))
    assert [each["gpu"] for each in plan.per_gpu] == [1]


def test_the_memory_that_a_driver_shows_counts_and_not_that_of_the_table(planned: Callable[..., Plan]) -> None:
    plan = planned("v100x2-pcie", facts=busy(0, 0, memory=24 * GIB))
    # What a V100's driver keeps, no program gets.
    assert [each["memory_gib"] for each in plan.per_gpu] == pytest.approx([24 - 266 / 1024] * 2, abs=0.001)


def test_weights_kept_in_the_hosts_memory_leave_the_card_at_a_price(planned: Callable[..., Plan]) -> None:
    values = {"serve.tensor-parallel-size": 1, "serve.max-model-len": 4096}
    whole, away = planned("v100x2-pcie", values), planned("v100x2-pcie", values | {"serve.cpu-offload-gb": 8})
    assert whole.per_gpu[0]["weights_gib"] - away.per_gpu[0]["weights_gib"] == pytest.approx(8, abs=0.01)
    assert away.per_gpu[0]["kv_cache_gib"] - whole.per_gpu[0]["kv_cache_gib"] == pytest.approx(8, abs=0.01)
    assert any("cross PCIe 3.0 x16" in each for each in away.warnings)
    assert not any("cross PCIe" in each for each in whole.warnings)


def test_a_plan_without_known_sizes_fits_nobody_knows(planned: Callable[..., Plan]) -> None:
    plan = planned("h200", checkpoint=Checkpoint("/srv/models/empty"))
    assert (plan.fits, plan.per_gpu, codes(plan)) == (None, (), [])


@pytest.mark.parametrize(("gpu", "kind", "noted"), [("v100-32g", "gemma4", True), ("v100-32g", "llama", False)])
def test_gemma_in_float16_is_to_be_compared(gpu: str, kind: str, noted: bool) -> None:
    plan = for_cards(gpu, 1, llama(model_type=kind), max_model_len=4096)
    assert plan.assumed["dtype"] == "float16"
    assert any("overflow in float16" in each for each in plan.warnings) is noted
    assert not any("overflow" in each for each in for_cards("h100", 1, llama(model_type=kind)).warnings)


def test_a_configuration_alone_may_lack_its_quantisation(planned: Callable[..., Plan]) -> None:
    assert any("hf_quant_config.json" in each for each in planned("h200", {}, MIDDLE).warnings)
    assert not any("hf_quant_config.json" in each for each in planned("h200", {}, LLAMA).warnings)
    stored = replace(MIDDLE, quantization=llama("fp8").quantization)
    assert not any("hf_quant_config.json" in each for each in planned("h200", {}, stored).warnings)
