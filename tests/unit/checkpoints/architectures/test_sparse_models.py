"""What config.json says a mixture of experts or a model with states is made of: parameters as published, tensors as
stored, caches as the engine keeps them."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints.architectures import Architecture, KeyValueLayers, LatentLayers, StateLayers, Weight, describe

MODELS = json.loads((Path(__file__).parent / "sparse_models.json").read_text(encoding="utf-8"))
"""Fields of published config.json files that matter, as known, and where a size of the model is stated. Few files were
read again, and then `source` says so; models that their own files confirm are in ../published_totals.json."""

SHARED = Path(__file__).parents[5] / "shared" / "fixtures" / "config"
CAPTURED = {
    "Qwen--Qwen3-30B-A3B-FP8": (30.5e9, "https://huggingface.co/Qwen/Qwen3-30B-A3B"),
    "nvidia--Qwen3-235B-A22B-NVFP4": (235e9, "https://huggingface.co/Qwen/Qwen3-235B-A22B"),
    "XiaomiMiMo--MiMo-V2-Flash": (309e9, "https://huggingface.co/XiaomiMiMo/MiMo-V2-Flash"),
    "deepseek-ai--DeepSeek-V3.2": (671e9, "https://huggingface.co/deepseek-ai/DeepSeek-V3.2"),
    "nvidia--DeepSeek-V3.1-NVFP4": (671e9, "https://huggingface.co/deepseek-ai/DeepSeek-V3.1"),
    "moonshotai--Kimi-K2-Instruct": (1.03e12, "https://huggingface.co/moonshotai/Kimi-K2-Instruct"),
    "nvidia--Kimi-K2.5-NVFP4": (1.03e12, "https://huggingface.co/moonshotai/Kimi-K2.5"),
    "openai--gpt-oss-120b": (116.8e9, "https://arxiv.org/abs/2508.10925"),
    "sgl-project--DeepSeek-V4-Flash-FP8": (284e9, "https://huggingface.co/deepseek-ai/DeepSeek-V4-Flash"),
    "zai-org--GLM-5.1-FP8": (744e9, "https://huggingface.co/zai-org/GLM-5.1"),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (
        120e9,
        "https://huggingface.co/nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
    ),
    "MiniMaxAI--MiniMax-M2.5": (229e9, "https://huggingface.co/MiniMaxAI/MiniMax-M2.5"),
    "nvidia--MiniMax-M2.5-NVFP4": (229e9, "https://huggingface.co/MiniMaxAI/MiniMax-M2.5"),
}

KINDS = {
    "Qwen--Qwen3.5-27B": {"keys and values": 16, "gated-delta-net": 48},
    "nvidia--Qwen3.6-27B-NVFP4": {"keys and values": 16, "gated-delta-net": 48},
    "XiaomiMiMo--MiMo-V2-Flash": {"keys and values": 9, "window of 128": 39},
    "deepseek-ai--DeepSeek-V3.2": {"latent with index": 61},
    "moonshotai--Kimi-K2-Instruct": {"latent": 61},
    "nvidia--Kimi-K2.5-NVFP4": {"latent": 61},
    "openai--gpt-oss-120b": {"keys and values": 18, "window of 128": 18},
    "sgl-project--DeepSeek-V4-Flash-FP8": {"latent window": 43, "latent with index over 4": 21, "latent over 128": 20},
    "zai-org--GLM-5.1-FP8": {"latent with index": 78},
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": {"keys and values": 8, "mamba2": 40},
    "MiniMaxAI--MiniMax-M2.5": {"keys and values": 62},
}


def captured(name: str) -> Architecture:
    path = SHARED / f"config_{name}.json"
    if not path.is_file():
        pytest.skip("the captured configurations are not beside the project")
    return describe(json.loads(path.read_text(encoding="utf-8")))


def by_name(name: str) -> dict[str, Any]:
    return next(each["config"] for each in MODELS if each["model"] == name)


def described(name: str, **changes: Any) -> Architecture:
    return describe({**by_name(name), **changes})


def with_text(name: str, **changes: Any) -> Architecture:
    config = by_name(name)
    return describe({**config, "text_config": {**config["text_config"], **changes}})


def kinds(architecture: Architecture) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for each in architecture.caches:
        if isinstance(each, StateLayers):
            kind = each.kind
        elif isinstance(each, LatentLayers):
            kind = "latent window" if each.window else "latent with index" if each.index_head_size else "latent"
            kind += f" over {each.compress_ratio}" if each.compress_ratio > 1 else ""
        else:
            kind = f"window of {each.window}" if each.window else "keys and values"
            kind = f"chunk of {each.chunk}" if each.chunk else kind
        counted[str(kind)] += len(each.layers)
    return dict(counted)


def named(architecture: Architecture, name: str) -> Weight:
    return next(each for each in architecture.weights if each.name == name)


def states(architecture: Architecture) -> StateLayers:
    return next(each for each in architecture.caches if isinstance(each, StateLayers))


def tensors(architecture: Architecture) -> int:
    return sum(each.count if "*" in each.name else 1 for each in architecture.weights)


@pytest.mark.parametrize("model", MODELS, ids=[each["model"] for each in MODELS])
def test_parameters_are_within_a_percent_of_the_published_size(model: dict[str, Any]) -> None:
    architecture = describe(model["config"])
    assert architecture.estimated is None
    assert architecture.parameters == pytest.approx(model["parameters"], rel=0.01)


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_configurations_have_their_published_size(name: str) -> None:
    architecture = captured(name)
    assert architecture.estimated is None
    assert architecture.parameters == pytest.approx(CAPTURED[name][0], rel=0.01)


@pytest.mark.parametrize("name", ["Qwen--Qwen3.5-27B", "nvidia--Qwen3.6-27B-NVFP4"])
def test_the_language_model_of_qwen_3_5_27b_has_27b_and_its_tower_half_of_one(name: str) -> None:
    architecture = captured(name)
    by_part = Counter[str]()
    for each in architecture.weights:
        by_part[each.part] += each.elements
    # https://huggingface.co/Qwen/Qwen3.5-27B; with its draft layer and without the tower llama.cpp counts 27.32 B.
    assert by_part["language"] == pytest.approx(27e9, rel=0.01)
    assert by_part["language"] + by_part["draft"] == pytest.approx(27.32e9, rel=0.001)
    # transformers 5.24.0, elements of Qwen3_5ForConditionalGeneration on the meta device
    assert architecture.parameters == 27_356_728_560


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_cache_has_its_number_of_layers(name: str) -> None:
    assert kinds(captured(name)) == KINDS[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen3.6-35B-A3B", {"keys and values": 10, "gated-delta-net": 30}),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"keys and values": 12, "gated-delta-net": 36}),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", {"latent": 7, "kimi-delta": 20}),
        ("openai/gpt-oss-20b", {"keys and values": 12, "window of 128": 12}),
        ("meta-llama/Llama-4-Scout-17B-16E", {"keys and values": 12, "chunk of 8192": 36}),
        ("ai21labs/Jamba-v0.1", {"keys and values": 4, "mamba1": 28}),
        ("transformers' default of falcon_h1, 4 layers", {"keys and values": 4, "mamba2": 4}),
    ],
)
def test_layers_of_several_kinds_are_counted_by_what_they_keep(name: str, expected: dict[str, int]) -> None:
    assert kinds(described(name)) == expected


@pytest.mark.parametrize("model", MODELS, ids=[each["model"] for each in MODELS])
def test_each_tensor_is_told_once_and_belongs_to_a_layer_that_there_is(model: dict[str, Any]) -> None:
    architecture = describe(model["config"])
    names = [each.name for each in architecture.weights]
    assert len(names) == len(set(names))
    layers = set(range(architecture.layers or 0))
    assert {each.layer for each in architecture.weights if each.part == "language"} - {None} == layers
    assert {layer for each in architecture.caches for layer in each.layers} == layers
    assert all(layer not in layers for each in architecture.draft_caches for layer in each.layers)
    assert all(size > 0 for each in architecture.weights for size in each.shape)


@pytest.mark.parametrize("model", MODELS, ids=[each["model"] for each in MODELS])
def test_experts_of_a_layer_are_one_row_and_add_up_to_their_record(model: dict[str, Any]) -> None:
    architecture = describe(model["config"])
    if architecture.experts is None:
        assert not any(each.count > 1 for each in architecture.weights)
        return
    for layer in architecture.experts.layers:
        rows = [each for each in architecture.weights if each.layer == layer and each.count > 1]
        matrices = [each for each in rows if each.kind == "linear"]
        assert {each.count for each in rows} == {architecture.experts.count}
        wide = 3 * architecture.experts.intermediate_size * (architecture.hidden_size or 0)
        assert sum(math.prod(each.shape) for each in matrices) == wide


def test_a_mixture_is_described_in_less_than_50_milliseconds() -> None:
    config = by_name("deepseek-ai/DeepSeek-V3")

    def seconds() -> float:
        started = time.perf_counter()
        describe(config)
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) < 0.05


def test_tensors_are_as_many_as_qwen_3_6_35b_has() -> None:
    # https://github.com/sgl-project/sglang-jax/issues/1251: 1,811 tensors; the draft layer's experts are not fused.
    architecture = described("Qwen/Qwen3.6-35B-A3B")
    assert tensors(architecture) == 1811
    fused = named(architecture, "model.language_model.layers.0.mlp.experts.gate_up_proj")
    assert (fused.shape, fused.count) == ((1024, 2048), 256)


def test_a_quantised_release_has_a_matrix_for_each_expert() -> None:
    # https://github.com/ml-explore/mlx-lm/pull/1224: 30,720 experts' matrices in 40 layers of Qwen3.6-35B-A3B-FP8.
    quantised = described("Qwen/Qwen3.6-35B-A3B", quantization_config={"quant_method": "fp8"})
    rows = [each for each in quantised.weights if ".experts.*." in each.name and each.part == "language"]
    assert sum(each.count for each in rows) == 30_720
    assert quantised.parameters == described("Qwen/Qwen3.6-35B-A3B").parameters


def test_an_output_gate_doubles_the_rows_of_queries() -> None:
    name = "model.language_model.layers.3.self_attn.q_proj.weight"
    gated, plain = (with_text("Qwen/Qwen3.6-35B-A3B", attn_output_gate=each) for each in (True, False))
    assert named(gated, name).shape == (2 * 16 * 256, 2048)
    assert named(plain, name).shape == (16 * 256, 2048)


def test_states_of_qwen_3_5_27b_on_one_of_two_ranks() -> None:
    convolution, recurrent = states(captured("Qwen--Qwen3.5-27B")).states
    assert (convolution.name, recurrent.name, recurrent.dtype) == ("convolution", "recurrent", "float32")
    assert recurrent.on_rank(2) == (24, 128, 128)
    assert 4 * math.prod(recurrent.on_rank(2)) == 1_572_864
    assert math.prod(convolution.on_rank(2)) == (2 * 8 * 128 + 24 * 128) * 3
    assert convolution.on_rank(2, speculative_tokens=2) == (5, 5120)
    assert recurrent.on_rank(2, speculative_tokens=2) == (24, 128, 128)


def test_states_of_qwen_3_6_35b() -> None:
    convolution, recurrent = states(described("Qwen/Qwen3.6-35B-A3B")).states
    assert (recurrent.shape, recurrent.dtype) == ((32, 128, 128), "float32")
    assert convolution.shape == (3, 2 * 16 * 128 + 32 * 128)


def test_a_state_that_ranks_do_not_divide_is_told() -> None:
    _, recurrent = states(captured("Qwen--Qwen3.5-27B")).states
    with pytest.raises(ValueError, match="48 of the recurrent state do not divide among 5 ranks"):
        recurrent.on_rank(5)


def test_groups_of_mamba_are_copied_to_ranks_that_outnumber_them() -> None:
    convolution, recurrent = states(captured("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8")).states
    assert convolution.on_rank(1) == (3, 8192 + 2 * 8 * 128)
    assert convolution.on_rank(8) == (3, (8192 + 2 * 8 * 128) // 8)
    assert convolution.on_rank(16) == (3, (8192 + 2 * 16 * 128) // 16)
    assert recurrent.dtype == "float32"
    assert recurrent.on_rank(16) == (8, 64, 128)


def test_latent_attention_keeps_576_elements_of_each_token() -> None:
    (kept,) = described("deepseek-ai/DeepSeek-V3").caches
    assert isinstance(kept, LatentLayers)
    assert kept.latent_rank + kept.rope_size == 576
    (small,) = described("mistralai/Mistral-Small-4-119B-2603").caches
    assert isinstance(small, LatentLayers)
    assert small.latent_rank + small.rope_size == 320


def test_an_indexer_keeps_a_key_of_128_elements() -> None:
    (kept,) = captured("deepseek-ai--DeepSeek-V3.2").caches
    assert isinstance(kept, LatentLayers)
    assert kept.index_head_size == 128


@pytest.mark.parametrize(
    "stated", [{"index_topk_pattern": "FFSS"}, {"index_topk_freq": 3}, {"indexer_types": ["full"] * 2 + ["shared"] * 2}]
)
def test_layers_that_share_a_choice_have_no_indexer(stated: dict[str, Any]) -> None:
    indexer = {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    changes = {"num_hidden_layers": 4, "num_nextn_predict_layers": 1, "architectures": ["GlmMoeDsaForCausalLM"]}
    architecture = described("deepseek-ai/DeepSeek-V3", **changes, **indexer, **stated)
    own = {each.layer for each in architecture.weights if ".indexer." in each.name}
    assert own == {0, 1, 4}
    by_layers = {each.layers: each.index_head_size for each in architecture.caches if isinstance(each, LatentLayers)}
    assert by_layers == {(0, 1): 128, (2, 3): None}


def test_heads_of_mimo_differ_between_layers_that_see_everything_and_a_window() -> None:
    architecture = captured("XiaomiMiMo--MiMo-V2-Flash")
    full, windowed = (each for each in architecture.caches if isinstance(each, KeyValueLayers))
    assert (full.key_value_heads, full.head_size, full.value_head_size, full.sinks) == (4, 192, 128, False)
    assert (windowed.key_value_heads, windowed.value_head_size, windowed.window, windowed.sinks) == (8, 128, 128, True)
    assert named(architecture, "model.layers.1.self_attn.v_proj.weight").shape == (8 * 128, 4096)


def test_draft_layers_are_parts_of_their_own_and_keep_what_the_model_keeps() -> None:
    architecture = described("deepseek-ai/DeepSeek-V3")
    draft = [each for each in architecture.weights if each.part == "draft"]
    assert {each.layer for each in draft} == {61}
    assert "model.layers.61.eh_proj.weight" in {each.name for each in draft}
    (kept,) = architecture.draft_caches
    assert kept.layers == (61,)
    without = described("deepseek-ai/DeepSeek-V3", num_nextn_predict_layers=0)
    assert without.draft_caches == () and without.parameters == architecture.parameters


def test_experts_of_nemotron_work_in_a_smaller_space() -> None:
    architecture = captured("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8")
    experts = named(architecture, "backbone.layers.1.mixer.experts.*.up_proj.weight")
    assert (experts.shape, experts.count) == ((2688, 1024), 512)
    assert named(architecture, "backbone.layers.1.mixer.fc1_latent_proj.weight").shape == (1024, 4096)


def test_experts_of_gpt_oss_are_one_tensor_with_biases() -> None:
    architecture = captured("openai--gpt-oss-120b")
    experts = named(architecture, "model.layers.0.mlp.experts.gate_up_proj")
    bias = named(architecture, "model.layers.0.mlp.experts.gate_up_proj_bias")
    assert (experts.shape, experts.count) == ((5760, 2880), 128)
    assert (bias.shape, bias.count, bias.kind) == ((5760,), 128, "bias")
    assert all(each.sinks for each in architecture.caches if isinstance(each, KeyValueLayers))


def test_dense_layers_before_a_mixture_decide_the_widest_network() -> None:
    assert described("deepseek-ai/DeepSeek-V3").intermediate_size == 18432
    assert described("openai/gpt-oss-20b").intermediate_size == 0
    assert described("Qwen/Qwen3-Next-80B-A3B-Instruct").intermediate_size == 512


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("deepseek-ai/DeepSeek-V3", "kv_lora_rank", None),
        ("openai/gpt-oss-20b", "num_local_experts", 0),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "linear_attn_config", {"kda_layers": 1}),
        ("tencent/Hunyuan-A13B-Instruct", "moe_intermediate_size", [3072] * 31 + [4096]),
        ("mistralai/Mixtral-8x7B-v0.1", "num_local_experts", "8"),
    ],
)
def test_what_a_family_needs_and_a_configuration_lacks_is_named(name: str, field: str, value: Any) -> None:
    architecture = described(name, **{field: value})
    assert architecture.weights == () and architecture.caches == ()
    assert architecture.estimated is not None
    assert field.removeprefix("linear_") in architecture.estimated or "kda_layers" in architecture.estimated
