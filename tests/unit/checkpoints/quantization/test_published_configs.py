"""How the configurations that publishers uploaded are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints.quantization import Quantization, read_quantization

CONFIGS = Path(__file__).parents[5] / "shared" / "fixtures" / "config"

PUBLISHED: dict[str, tuple[str, str, int | None, int, str | None] | None] = {
    "config_MiniMaxAI--MiniMax-M2.5": ("fp8-block", "fp8", 128, 3, None),
    "config_Qwen--Qwen3-30B-A3B-FP8": ("fp8-block", "fp8", 128, 145, None),
    "config_Qwen--Qwen3-32B-FP8-Static-PerTensor": ("fp8-tensor", "modelopt", None, 1, "fp8"),
    "config_Qwen--Qwen3-32B": None,
    "config_Qwen--Qwen3.5-27B": None,
    "config_XiaomiMiMo--MiMo-V2-Flash": ("fp8-block", "fp8", 128, 0, None),
    "config_deepseek-ai--DeepSeek-V3.2": ("fp8-block", "fp8", 128, 0, None),
    "config_google--gemma-4-26B-A4B": None,
    "config_meta-llama--Meta-Llama-3.1-70B": None,
    "config_moonshotai--Kimi-K2-Instruct": ("fp8-block", "fp8", 128, 0, None),
    "config_nvidia--DeepSeek-V3.1-NVFP4": ("nvfp4", "modelopt", 16, 246, "fp8"),
    "config_nvidia--Gemma-4-26B-A4B-NVFP4": ("nvfp4", "modelopt", 16, 93, "fp8"),
    "config_nvidia--Kimi-K2.5-NVFP4": ("nvfp4", "modelopt", 16, 64, "fp8"),
    "config_nvidia--MiniMax-M2.5-NVFP4": ("nvfp4", "modelopt", 16, 125, "fp8"),
    # Its name says FP8; its config.json, which is all there is of it, does not.
    "config_nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": None,
    "config_nvidia--Qwen3-235B-A22B-NVFP4": None,
    "config_nvidia--Qwen3.6-27B-NVFP4": ("mixed", "modelopt", None, 2, "fp8"),
    "config_openai--gpt-oss-120b": ("mxfp4", "mxfp4", 32, 4, None),
    "config_sgl-project--DeepSeek-V4-Flash-FP8": ("fp8-block", "fp8", 128, 0, None),
    "config_zai-org--GLM-5.1-FP8": ("fp8-block", "fp8", 128, 712, None),
    "hf_quant_config_Qwen--Qwen3-32B-FP8-Static-PerTensor": ("fp8-tensor", "modelopt", None, 1, "fp8"),
    "hf_quant_config_nvidia--DeepSeek-V3.1-NVFP4": ("nvfp4", "modelopt", 16, 246, "fp8"),
    "hf_quant_config_nvidia--MiniMax-M2.5-NVFP4": ("nvfp4", "modelopt", 16, 125, "fp8"),
    "hf_quant_config_nvidia--Qwen3.6-27B-NVFP4": ("mixed", "modelopt", None, 2, "fp8"),
    "qcfg_awq_zephyr-7b-alpha": ("int4", "awq", 128, 0, None),
    "qcfg_compressed-tensors_w4a16_example_int4_config": ("int4", "compressed-tensors", None, 0, None),
    "qcfg_ct_nvfp4_group0_weights": ("nvfp4", "compressed-tensors", 16, 0, None),
}
"""Scheme, container, group size, number of ignored modules and patterns, KV cache; None for not quantised."""

pytestmark = pytest.mark.skipif(not CONFIGS.is_dir(), reason="the shared fixtures are not here")


def read(name: str) -> Quantization | None:
    document: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    if name.startswith("hf_"):
        return read_quantization({"hf_quant_config.json": document})
    if name.startswith("qcfg") and "quantization_config" not in document:
        document = {"quantization_config": document}
    documents = {"config.json": document}
    beside = CONFIGS / f"hf_quant_{name}.json"
    if beside.is_file():
        documents["hf_quant_config.json"] = json.loads(beside.read_text(encoding="utf-8"))
    return read_quantization(documents)


def test_every_configuration_is_listed_here() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_is_read(name: str) -> None:
    found = read(name)
    told = found and (found.scheme, found.container, found.group_size, len(found.ignored), found.kv_cache)
    assert told == PUBLISHED[name]


def test_each_module_of_a_mixed_checkpoint_has_the_algorithm_that_is_listed_for_it() -> None:
    mixed = read("config_nvidia--Qwen3.6-27B-NVFP4")
    assert mixed is not None and mixed.method == "modelopt_mixed"
    layer = "model.language_model.layers.0"
    assert mixed.scheme_of(f"{layer}.linear_attn.out_proj") == mixed.schemes[0]
    assert [mixed.scheme_of(f"{layer}.{each}") for each in ("linear_attn.in_proj_a", "linear_attn.conv1d")] == [
        None
    ] * 2
    packed = mixed.scheme_of(f"{layer}.mlp.down_proj")
    assert packed is not None and (packed.name, packed.group_size, packed.activations) == ("nvfp4", 16, None)
    head = mixed.scheme_of("lm_head", "head")
    assert head is not None and head.name == "nvfp4"
    assert mixed.scheme_of("mtp.layers.0.mlp.down_proj", part="draft") is None


def test_wildcards_of_modelopt_cover_what_is_below_and_no_other_layer() -> None:
    found = read("config_nvidia--MiniMax-M2.5-NVFP4")
    assert found is not None
    layer = "model.layers.1.{}".format
    assert found.scheme_of(layer("self_attn.q_proj")) is None
    assert found.scheme_of(layer("block_sparse_moe.gate"), "router") is None
    experts = found.scheme_of(layer("block_sparse_moe.experts.*.w1"))
    assert experts is not None and experts.name == "nvfp4"


def test_only_the_experts_of_gpt_oss_are_packed() -> None:
    found = read("config_openai--gpt-oss-120b")
    assert found is not None
    experts = found.scheme_of("model.layers.3.mlp.experts.gate_up_proj")
    assert experts is not None and experts.name == "mxfp4"
    for other in ("model.layers.3.self_attn.q_proj", "model.layers.3.mlp.router", "lm_head"):
        assert found.scheme_of(other) is None


def test_deepseek_keeps_modules_that_it_does_not_list() -> None:
    found = read("config_deepseek-ai--DeepSeek-V3.2")
    assert found is not None
    layer = "model.layers.61.{}".format
    assert found.scheme_of(layer("self_attn.indexer.weights_proj")) is None
    assert found.scheme_of(layer("eh_proj")) is None
    assert found.scheme_of("lm_head", "head") is None
    assert found.scheme_of(layer("mlp.gate"), "router") is None
    blocks = found.scheme_of(layer("self_attn.kv_b_proj"))
    assert blocks is not None and blocks.block == (128, 128)
