"""The peak of the profile run, what graphs and libraries take, and which model runner a model gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.version import InvalidVersion

from onecat.checkpoints import Checkpoint, describe
from onecat.planner.memory import Device, estimate, seen_by_engine
from onecat.planner.memory.activations import activation_bytes
from onecat.planner.memory.graphs import capture_sizes, graph_bytes
from onecat.planner.memory.overhead import outside_bytes, overhead_bytes
from onecat.planner.memory.runners import runner_of
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.versions import behaviour_of
from tests.unit.planner.examples import CONFIG as LLAMA_8B
from tests.unit.planner.memory.examples import (
    A100,
    ALL,
    GIB,
    H200,
    L40S,
    MIXED,
    RTX3090,
    SMALL,
    V100,
    checkpoint,
    settings,
)

QWEN2_5_32B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 64,
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "vocab_size": 152064,
}
QWEN3_32B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 64,
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
}
WHOLE = Stage(range(64), True, True)


def peak(of: Checkpoint, device: Device, version: str, **flags: object) -> float:
    """GiB of the profile run's peak."""
    return activation_bytes(of, settings(of, device, version, **flags), WHOLE, device) / GIB


@pytest.mark.parametrize(
    ("config", "device", "version", "flags", "logged"),
    [
        # https://github.com/vllm-project/vllm/issues/10517
        (LLAMA_8B, RTX3090, "0.6.4", {"max_model_len": 20000}, 2.07),
        (LLAMA_8B, RTX3090, "0.6.4", {"max_model_len": 29000}, 2.99),
        # https://github.com/vllm-project/vllm/pull/10511
        (LLAMA_8B, H200, "0.6.5", {"max_model_len": 8192}, 1.26),
        # https://github.com/vllm-project/vllm/issues/15815
        (QWEN2_5_32B, L40S, "0.7.3", {"max_model_len": 10000, "max_num_seqs": 64, "tensor_parallel_size": 2}, 1.26),
        # https://github.com/llm-d/llm-d-benchmark/pull/1791
        (QWEN3_32B, H200, "0.26.0", {}, 1.48),
    ],
)
def test_peaks_are_as_engines_logged_them(
    config: dict[str, object], device: Device, version: str, flags: dict[str, object], logged: float
) -> None:
    assert peak(checkpoint(config), device, version, **flags) == pytest.approx(logged, rel=0.03)


def test_more_tokens_in_a_batch_take_more() -> None:
    model = checkpoint(LLAMA_8B)
    assert peak(model, H200, "0.27.1", max_num_batched_tokens=16384) > peak(model, H200, "0.27.1")


def test_sorting_the_vocabulary_of_many_sequences_outweighs_all_else_before_0_18() -> None:
    model = checkpoint(LLAMA_8B)
    logits = 1024 * 128256 * 4 / GIB
    assert peak(model, H200, "0.11.0") > 9 * logits
    assert peak(model, H200, "0.11.0", max_num_seqs=64) < 2 * logits
    in_place = peak(model, H200, "0.19.0")
    assert in_place == pytest.approx(3.5 * logits, rel=0.05)


def test_model_runner_v2_counts_words_for_penalties_all_the_time() -> None:
    model = checkpoint(LLAMA_8B)
    counted = peak(model, H200, "0.27.1") - peak(model, H200, "0.26.0")
    assert counted == pytest.approx(1024 * 128256 * (4 + 4 / 32) / GIB)


def test_a_stage_without_the_head_chooses_no_tokens() -> None:
    model = checkpoint(SMALL, vocab_size=500_000)
    asked = settings(model, version="0.11.0", pipeline_parallel_size=2)
    first, last = Stage(range(2), True, False), Stage(range(2, 4), False, True)
    assert activation_bytes(model, asked, first, H200) < activation_bytes(model, asked, last, H200) / 10


def test_experts_take_caches_for_each_token_and_expert() -> None:
    few, many = checkpoint(MIXED, num_experts_per_tok=2), checkpoint(MIXED, num_experts_per_tok=8)
    assert peak(many, H200, "0.27.1") > peak(few, H200, "0.27.1")


def test_a_tower_for_pictures_is_profiled_unless_none_are_let_in() -> None:
    config = {
        **SMALL,
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {
            **SMALL,
            "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 64,
            "linear_value_head_dim": 64,
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 8,
        },
        "vision_config": {
            "depth": 2, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 1024,
            "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
        },
    }  # fmt: skip
    model = checkpoint(config)
    assert model.architecture.encoders
    without = peak(model, H200, "0.27.1", limit_mm_per_prompt={"image": 0})
    assert peak(model, H200, "0.27.1") > without + 1


@pytest.mark.parametrize(
    ("config", "device", "version", "runner"),
    [
        (LLAMA_8B, H200, "0.7.3", "v0"),
        (LLAMA_8B, H200, "0.8.5", "v1"),
        (LLAMA_8B, V100, "0.8.5", "v0"),
        (LLAMA_8B, V100, "0.10.2", "v1"),
        (LLAMA_8B, H200, "0.24.0", "v2"),
        (LLAMA_8B, H200, "0.27.1", "v2"),
        (MIXED, H200, "0.27.1", "v1"),
        (MIXED, H200, "0.33.0", "v2"),
    ],
)
def test_the_model_runner_depends_on_version_card_and_model(
    config: dict[str, object], device: Device, version: str, runner: str
) -> None:
    assert runner_of(describe(config), behaviour_of(version), device) == runner


def test_what_is_no_version_has_no_behaviour() -> None:
    with pytest.raises(InvalidVersion):
        behaviour_of("newest")


def test_graphs_are_captured_for_growing_steps() -> None:
    sizes = capture_sizes(settings(checkpoint(SMALL), L40S))
    assert sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert sizes[-3:] == (480, 496, 512) and len(sizes) == 51
    assert capture_sizes(settings(checkpoint(SMALL), L40S, max_num_seqs=4)) == (1, 2, 4, 8)


def test_graphs_are_taken_off_the_budget_where_the_engine_estimates_them() -> None:
    mixed, dense = checkpoint(MIXED), checkpoint(SMALL)
    assert graph_bytes(mixed, settings(mixed, version="0.19.1"), ALL, H200) == 0
    assert graph_bytes(mixed, settings(mixed, version="0.21.0"), ALL, H200) > 0
    assert graph_bytes(mixed, settings(mixed, version="0.21.0", enforce_eager=True), ALL, H200) == 0
    assert graph_bytes(dense, settings(dense, version="0.27.1"), ALL, H200) == 0
    assert graph_bytes(dense, settings(dense, version="0.33.0"), ALL, H200) > 0


def test_communication_moved_out_of_the_budget_at_0_11() -> None:
    model = checkpoint(SMALL)
    before, since = (settings(model, version=each, tensor_parallel_size=2) for each in ("0.10.2", "0.11.0"))
    assert overhead_bytes(before, A100) > overhead_bytes(since, A100)
    assert outside_bytes(before, A100) < outside_bytes(since, A100)
    both = (overhead_bytes(each, A100) + outside_bytes(each, A100) for each in (before, since))
    assert len(set(both)) == 1


def test_the_parts_of_a_card_come_to_its_memory() -> None:
    model = checkpoint(SMALL)
    used = replace(H200, used=GIB)
    (card,) = estimate(model, [used], settings(model, used)).per_gpu
    parts = card.weights + card.activations + card.graphs + card.overhead + card.kv_cache
    assert parts == card.budget
    assert parts + card.other + card.outside + card.free == card.memory
    assert card.beyond_free == 0


def test_a_card_that_others_use_has_not_the_budget_free() -> None:
    model = checkpoint(SMALL)
    used = replace(H200, used=20 * GIB)
    (card,) = estimate(model, [used], settings(model, used)).per_gpu
    assert card.beyond_free == card.budget - (card.memory - card.other - card.outside) > 0


def test_ranks_need_as_many_devices() -> None:
    model = checkpoint(SMALL)
    with pytest.raises(ValueError, match="2 ranks need as many devices, not 1"):
        estimate(model, [H200], settings(model, tensor_parallel_size=2))


def test_programs_see_less_of_a_card_than_its_driver_counts() -> None:
    assert seen_by_engine(143771 << 20, 90) / GIB == pytest.approx(139.8, abs=0.01)
    assert seen_by_engine(24576 << 20, 86) / GIB == pytest.approx(23.58, abs=0.01)
    assert seen_by_engine(64 << 30, None) == 64 << 30
