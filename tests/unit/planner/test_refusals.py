"""What the engine is known to refuse is found before it is started, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint, Problem, read_quantization
from onecat.facts import Ascend, Facts, Npu, Nvidia
from onecat.planner import Plan
from tests.unit.planner.examples import LLAMA, V100, host, llama

TWO_V100 = host((V100, "7.0"), (V100, "7.0"))
SPACE = {"env.VLLM_CPU_KVCACHE_SPACE": "64"}
"""A KV cache for 200 000 tokens."""
TWO_NPUS = Facts("npu1", ascend=Ascend(npus=(Npu(0, "910B4"), Npu(1, "910B4"))))


def compressed(format: str) -> dict[str, str]:
    return {"quantization": "compressed-tensors", "format": format}


def codes(plan: Plan) -> list[str]:
    return [refusal.code for refusal in plan.refusals]


@pytest.mark.parametrize(
    ("profile", "serve", "checkpoint", "facts", "code"),
    [
        ("cpu", {"max-model-len": 200_000}, {}, None, "max-model-len"),
        ("cpu", {"max-model-len": "200k"}, {}, None, "max-model-len"),
        ("cpu", {"max-model-len": -5}, {}, None, "max-model-len"),
        ("h200", {"gpu-memory-utilization": 5}, {}, None, "gpu-memory-utilization"),
        ("h200", {"gpu-memory-utilization": float("nan")}, {}, None, "gpu-memory-utilization"),
        (
            "a100x2-80g",
            {},
            compressed("nvfp4-pack-quantized"),
            TWO_V100,
            "quantization-capability",
        ),
        (
            "v100x2-pcie",
            {},
            compressed("int-quantized"),
            None,
            "quantization-capability",
        ),
        ("v100x2-pcie", {}, {"quantization": "mxfp4"}, None, "quantization-capability"),
        ("ascend910b", {}, {"quantization": "fp8"}, None, "quantization-fp8-ascend"),
        (
            "ascend910b",
            {},
            compressed("float-quantized"),
            None,
            "quantization-fp8-ascend",
        ),
        ("ascend910b", {"kv-cache-dtype": "fp8"}, {}, None, "kv-cache-dtype-fp8"),
        ("ascend910b", {"tensor-parallel-size": 4}, {}, TWO_NPUS, "not-enough-npus"),
        ("a100x2-80g", {}, {"attention_heads": 7}, None, "tensor-parallel-heads"),
        ("a100x2-80g", {"tensor-parallel-size": 0}, {}, None, "layout"),
        ("v100x2-pcie", {"tensor-parallel-size": 4}, {}, TWO_V100, "not-enough-gpus"),
        ("v100x2-pcie", {}, {}, host(), "not-enough-gpus"),
        ("v100x2-pcie", {"dtype": "bfloat16"}, {}, None, "dtype-bfloat16"),
        ("v100x2-pcie", {"kv-cache-dtype": "bfloat16"}, {}, None, "kv-cache-dtype-bfloat16"),
        ("v100x2-pcie", {"kv-cache-dtype": "fp8"}, {}, TWO_V100, "kv-cache-dtype-fp8"),
        ("v100x2-pcie", {"kv-cache-dtype": "auto"}, {"kv": "fp8"}, None, "kv-cache-dtype-fp8"),
        ("t4", {"kv-cache-dtype": "fp8"}, {"small": True}, None, "kv-cache-dtype-fp8"),
        ("v100x2-pcie", {"kv-cache-dtype": "fp8_e5m2", "attention-backend": "CUSTOM"}, {}, None, "kv-cache-dtype-fp8"),
        ("a100x2-80g", {"kv-cache-dtype": "fp8", "attention-backend": "TRITON_ATTN"}, {}, None, "kv-cache-dtype-fp8"),
        ("h200", {"kv-cache-dtype": "fp16"}, {}, None, "kv-cache-dtype-fp16"),
        ("v100x2-pcie", {}, {"model_type": "gemma3_text"}, None, "dtype-float16"),
        ("a100x2-80g", {}, {"quantization": "awq"}, TWO_V100, "quantization-capability"),
        ("a100x2-80g", {}, {"quantization": "fp8"}, TWO_V100, "quantization-capability"),
        ("a100x2-80g", {}, {"quantization": "quasar"}, None, "quantization-unknown"),
        ("h200", {"quantization": "quasar_nvfp4"}, {}, None, "quantization-unknown"),
        ("h200", {"quantization": "fp8"}, {"quantization": "compressed-tensors"}, None, "quantization-mismatch"),
        (
            "cpu",
            {},
            {"problems": (Problem("truncated", "is cut", "m.safetensors", "copy"),)},
            None,
            "checkpoint.truncated",
        ),
    ],
)
def test_what_the_engine_refuses_is_refused_with_a_fix(
    planned: Callable[..., Plan],
    profile: str,
    serve: dict[str, Any],
    checkpoint: dict[str, Any],
    facts: Facts | None,
    code: str,
) -> None:
    values = {f"serve.{name}": value for name, value in serve.items()}
    plan = planned(profile, values, llama(**checkpoint), facts)
    assert codes(plan) == [code]
    assert plan.refusals[0].why
    assert plan.refusals[0].fix


def test_a_method_that_only_a_file_beside_config_json_states_must_be_asked_for(planned: Callable[..., Plan]) -> None:
    documents = {"config.json": {}, "quant_config.json": {"quant_method": "quasar_nvfp4", "block_size": 16}}
    checkpoint = replace(llama(), quantization=read_quantization(documents))
    [refusal] = planned("cpu", SPACE, checkpoint).refusals
    assert refusal.code == "quantization-unasked"
    assert refusal.fix == ("quantization: quasar_nvfp4",)
    assert codes(planned("cpu", {"serve.quantization": "quasar_nvfp4"} | SPACE, checkpoint)) == []


@pytest.mark.parametrize(
    ("profile", "values", "checkpoint", "facts"),
    [
        ("v100x2-pcie", {}, {"quantization": "gptq"}, TWO_V100),
        ("v100x2-pcie", {}, {"quantization": "compressed-tensors"}, TWO_V100),
        ("v100x2-pcie", {"serve.kv-cache-dtype": "float16"}, {}, TWO_V100),
        ("v100x2-pcie", {"serve.kv-cache-dtype": "float16"}, {"kv": "fp8"}, TWO_V100),
        ("a100x2-80g", {}, {"kv": "fp8"}, None),
        ("cpu", {}, {"kv": "fp8"}, None),
        ("h200", {"serve.kv-cache-dtype": "fp8"}, {"quantization": "fp8"}, None),
        ("a100x2-80g", {"serve.kv-cache-dtype": "fp8"}, {}, None),
        ("a100x2-80g", {"serve.dtype": "bfloat16"}, {"quantization": "awq"}, None),
        ("cpu", {"serve.max-model-len": 200_000} | SPACE, {"rope_type": "yarn"}, None),
        ("cpu", {"serve.max-model-len": 200_000} | SPACE, {"max_position_embeddings": None}, None),
        ("cpu", {"serve.max-model-len": 200_000, "env.VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"} | SPACE, {}, None),
        ("cpu", {"serve.dtype": "bfloat16"}, {}, host()),
        ("v100x2-pcie", {}, {}, Facts("gpu1", nvidia=Nvidia(library_found=True, nvml_error="Driver mismatch"))),
        ("v100x2-pcie", {}, {}, Facts("gpu1")),
        ("v100x2-pcie", {}, {}, host((V100, "[N/A]"), (V100, "7"))),
        (
            "a100x2-80g",
            {},
            compressed("pack-quantized"),
            None,
        ),
        ("cpu", {"serve.max-model-len": -1}, {}, None),
        # What the patch series opens below compute capability 7.5.
        ("v100x2-pcie", {}, {"quantization": "awq"}, TWO_V100),
        ("v100x2-pcie", {}, {"quantization": "fp8"}, TWO_V100),
        ("v100x2-pcie", {}, {"quantization": "modelopt_fp4"}, TWO_V100),
        ("v100x2-pcie", {"serve.quantization": "quasar_nvfp4"}, {}, TWO_V100),
        ("v100x2-pcie", {}, compressed("nvfp4-pack-quantized"), TWO_V100),
        ("v100x2-pcie", {}, compressed("float-quantized"), TWO_V100),
        ("v100x2-pcie", {}, compressed("pack-quantized"), TWO_V100),
        # Nothing is known of what these engines take.
        ("1cat-v100", {"serve.quantization": "anything"}, {"quantization": "awq"}, TWO_V100),
        ("1cat-v100", {}, {"kv": "fp8"}, TWO_V100),
        ("ascend910b", {"serve.quantization": "ascend"}, {}, TWO_NPUS),
        ("ascend910b", {"serve.tensor-parallel-size": 2}, {}, TWO_NPUS),
        ("ascend910b", {"serve.tensor-parallel-size": 8}, {}, Facts("npu1")),
    ],
)
def test_what_works_or_cannot_be_known_is_not_refused(
    planned: Callable[..., Plan],
    profile: str,
    values: dict[str, Any],
    checkpoint: dict[str, Any],
    facts: Facts | None,
) -> None:
    assert codes(planned(profile, values, llama(**checkpoint), facts)) == []


@pytest.mark.parametrize(("profile", "card"), [("v100x2-pcie", "7.0"), ("t4", "7.5")])
def test_a_checkpoint_that_asks_for_an_fp8_kv_cache_gets_one_of_float16_where_the_card_has_none(
    planned: Callable[..., Plan], profile: str, card: str
) -> None:
    plan = planned(profile, {}, llama(kv="fp8", small=True))
    chosen = next(each for each in plan.reasons if each.arg == "--kv-cache-dtype")
    assert (codes(plan), chosen.value, chosen.origin) == ([], "float16", "planner")
    assert "the checkpoint asks for an FP8 KV cache" in chosen.why and card in chosen.why
    assert plan.assumed["kv_cache_dtype"] == "float16"


def test_a_card_with_fp8_leaves_the_kv_cache_as_the_checkpoint_asks(planned: Callable[..., Plan]) -> None:
    plan = planned("h200", {}, llama(kv="fp8"))
    assert "--kv-cache-dtype" not in plan.server_args
    assert plan.assumed["kv_cache_dtype"] == "fp8"


def test_an_fp8_kv_cache_asked_for_by_hand_is_refused_where_the_card_has_none(planned: Callable[..., Plan]) -> None:
    [refusal] = planned("v100x2-pcie", {"serve.kv-cache-dtype": "auto"}, llama(kv="fp8"), TWO_V100).refusals
    assert "the checkpoint asks for one" in refusal.why and refusal.fix == ("kv-cache-dtype: float16",)
    [refusal] = planned("v100x2-pcie", {"serve.kv-cache-dtype": "fp8"}, llama(kv="fp8"), TWO_V100).refusals
    assert refusal.fix == ("kv-cache-dtype: float16",)
    [refusal] = planned("v100x2-pcie", {"serve.kv-cache-dtype": "fp8"}, LLAMA, TWO_V100).refusals
    assert refusal.fix == ("kv-cache-dtype: auto",)


def test_the_cards_of_the_host_count_and_not_those_of_the_profile(planned: Callable[..., Plan]) -> None:
    plan = planned("a100x2-80g", {"serve.dtype": "bfloat16"}, facts=TWO_V100)
    assert codes(plan) == ["dtype-bfloat16"]
    assert any("the host has Tesla V100-PCIE-32GB" in each for each in plan.warnings)


def test_a_checkpoint_that_tells_nothing_is_planned_without_a_refusal(planned: Callable[..., Plan]) -> None:
    assert codes(planned("v100x2-pcie", checkpoint=Checkpoint("/srv/m"))) == []
