"""Refusals about what ranks cannot share, kernels that old cards lack, and models that a release does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onecat.checkpoints import Checkpoint, describe, read_quantization
from onecat.engines import added_after, removed_after
from onecat.planner import Plan
from onecat.planner.parts import undivided_checkpoint
from tests.unit.planner.examples import CONFIG, checkpoint_of, llama
from tests.unit.planner.test_layouts import for_cards

BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
NVFP4 = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "format": "nvfp4-pack-quantized",
            "weights": {
                "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
            },
        }
    },
}  # fmt: skip
COMPRESSED_BLOCKS = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128], "symmetric": True,
            },
        }
    },
}  # fmt: skip
EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 4,
    "head_dim": 128,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "num_key_value_heads": 4,
    "rope_scaling": None,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def stored(quantization: dict[str, Any] | None, **fields: Any) -> Checkpoint:
    """A checkpoint known by its config.json alone, with its weights stored in some way."""
    config = {**CONFIG, **fields}
    claimed = read_quantization({"config.json": {**config, "quantization_config": quantization}})
    return replace(checkpoint_of(**fields), quantization=claimed if quantization else None)


def codes(plan: Plan) -> list[str]:
    return [each.code for each in plan.refusals]


@pytest.mark.parametrize(
    ("checkpoint", "ranks", "kind"),
    [
        (stored(None, num_attention_heads=28, num_key_value_heads=4), 8, "heads"),
        (stored(None, num_attention_heads=24, num_key_value_heads=8), 6, "heads"),
        (stored(BLOCKS, **EXPERTS), 8, "blocks"),
        (stored(BLOCKS, intermediate_size=14336 - 64), 2, "blocks"),
        (stored(COMPRESSED_BLOCKS, intermediate_size=14336 - 128), 2, "blocks"),
        (stored(BLOCKS, head_dim=64), 8, "blocks"),
        (stored(NVFP4, intermediate_size=14352), 2, "groups"),
    ],
)
def test_what_cannot_be_divided_is_named(checkpoint: Checkpoint, ranks: int, kind: str) -> None:
    found = undivided_checkpoint(checkpoint, ranks)
    assert {each.kind for each in found} == {kind}
    assert all(each.source for each in found)


@pytest.mark.parametrize(
    ("checkpoint", "ranks"),
    [
        (stored(None), 8),
        (stored(None), 16),
        (stored(None, num_attention_heads=28, num_key_value_heads=4), 4),
        (stored(BLOCKS), 8),
        (stored(BLOCKS, **EXPERTS), 2),
        (stored(COMPRESSED_BLOCKS), 4),
        (stored(NVFP4), 8),
        (stored(NVFP4, **EXPERTS), 8),
        (stored(BLOCKS, **EXPERTS), 1),
        # 24 columns of 16: no tile of Marlin (64 rows, 128 columns), which 0.27.1 pads with zeros.
        (stored(NVFP4, intermediate_size=16 * 48), 2),
    ],
)
def test_what_can_be_divided_is_not_refused(checkpoint: Checkpoint, ranks: int) -> None:
    assert undivided_checkpoint(checkpoint, ranks) == ()


def test_experts_dealt_out_whole_are_not_divided() -> None:
    checkpoint = stored(BLOCKS, **EXPERTS)
    plan = for_cards("h100", 8, checkpoint, tensor_parallel_size=8)
    [refusal] = plan.refusals
    assert (refusal.code, plan.fits) == ("tensor-parallel-blocks", False)
    assert "enable-expert-parallel: true, which deals experts out whole" in refusal.fix
    assert refusal.fix[0] == "tensor-parallel-size: one of 1, 2"
    assert codes(for_cards("h100", 8, checkpoint, tensor_parallel_size=8, enable_expert_parallel=True)) == []


@pytest.mark.parametrize("quantization", [BLOCKS, NVFP4])
def test_experts_in_eight_or_four_bit_floats_have_no_kernel_on_volta(quantization: dict[str, Any]) -> None:
    checkpoint = stored(quantization, **EXPERTS)
    assert codes(for_cards("v100-32g", 1, checkpoint)) == ["experts-capability"]
    assert codes(for_cards("l4", 1, checkpoint)) == []


def test_experts_in_nvfp4_have_no_kernel_on_processors(planned: Callable[..., Plan]) -> None:
    space = {"env.VLLM_CPU_KVCACHE_SPACE": "8"}
    assert codes(planned("cpu", space, stored(NVFP4, **EXPERTS))) == ["experts-no-kernel"]
    assert codes(planned("cpu", space, stored(NVFP4))) == []
    assert codes(planned("cpu", space, stored(BLOCKS, **EXPERTS))) == []


@pytest.mark.parametrize("quantization", [BLOCKS, NVFP4, COMPRESSED_BLOCKS])
def test_dense_layers_of_the_same_formats_are_what_the_patches_are_for(quantization: dict[str, Any]) -> None:
    assert codes(for_cards("v100-32g", 1, stored(quantization), max_model_len=4096)) == []
    assert codes(for_cards("v100-32g", 1, stored(None, **EXPERTS), max_model_len=4096)) == []


def test_latent_attention_must_be_switched_off_on_volta(planned: Callable[..., Plan]) -> None:
    from onecat.checkpoints.architectures import LatentLayers

    latent = llama(caches=(LatentLayers(tuple(range(32)), 32, 512, 64),))
    assert codes(planned("v100x2-pcie", {}, latent)) == ["mla-capability"]
    assert codes(planned("v100x2-pcie", {"env.VLLM_MLA_DISABLE": "1"}, latent)) == []
    assert codes(planned("a100x2-80g", {}, latent)) == []


@pytest.mark.parametrize(("gpu", "refused"), [("a100", True), ("h100", False), ("h200", False)])
@pytest.mark.parametrize("index", [128, None])
def test_sparse_latent_attention_has_kernels_from_hopper_on(gpu: str, refused: bool, index: int | None) -> None:
    from onecat.checkpoints.architectures import LatentLayers

    sparse = llama(caches=(LatentLayers(tuple(range(32)), 32, 512, 64, index_head_size=index),))
    found = codes(for_cards(gpu, 1, sparse, max_model_len=4096))
    assert found == (["sparse-attention-capability"] if refused and index else [])


def versioned(version: str, **fields: Any) -> Plan:
    quantization = fields.pop("quantization_config", None)
    return for_cards("h200", 1, stored(quantization, **fields), version=version, max_model_len="2048")


@pytest.mark.parametrize(
    ("version", "fields", "word"),
    [
        ("0.6.3", {"architectures": ["Gemma4ForCausalLM"]}, "0.19.0"),
        ("0.18.1", {"architectures": ["Gemma4ForCausalLM"]}, "0.19.0"),
        ("0.10.2", {"quantization_config": COMPRESSED_BLOCKS}, "0.11.0"),
        ("0.6.5", {"quantization_config": BLOCKS}, "0.6.6"),
        ("0.8.5", {"quantization_config": NVFP4}, "0.9.0"),
        ("0.10.0", {"architectures": ["GptOssForCausalLM"]}, "0.10.1"),
    ],
)
def test_a_release_that_is_too_old_is_refused_with_the_first_that_is_not(
    version: str, fields: dict[str, Any], word: str
) -> None:
    [refusal] = versioned(version, **fields).refusals
    assert (refusal.code, refusal.certain) == ("engine-too-old", True)
    assert f"no release before {word} does" in refusal.why and "https://" in refusal.why


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("0.19.0", {"architectures": ["Gemma4ForCausalLM"]}),
        ("0.11.0", {"quantization_config": COMPRESSED_BLOCKS}),
        ("0.6.6", {"quantization_config": BLOCKS}),
        ("0.27.1", {"quantization_config": NVFP4}),
        ("0.6.3", {}),
        ("0.27.1", {"architectures": ["SomethingOfOnesOwnForCausalLM"]}),
    ],
)
def test_a_release_that_is_new_enough_or_of_which_nothing_is_known_is_not_refused(
    version: str, fields: dict[str, Any]
) -> None:
    assert "engine-too-old" not in codes(versioned(version, **fields))


def test_an_architecture_of_a_later_release_is_refused_by_plan_and_tried_by_up() -> None:
    [refusal] = versioned("0.27.1", architectures=["DeepseekV41ForCausalLM"]).refusals
    assert (refusal.code, refusal.certain) == ("engine-too-old", False)
    assert added_after("vllm", "0.33.0", "DeepseekV41ForCausalLM") is None
    assert added_after("vllm", "0.26.0", "DeepseekV41ForCausalLM") == "0.30.0"
    assert added_after("vllm", "0.27.1", "LlamaForCausalLM") is None


def test_an_architecture_that_a_release_has_dropped_is_refused_with_the_last_that_had_it() -> None:
    [refusal] = versioned("0.27.1", architectures=["TeleChatForCausalLM"]).refusals
    assert (refusal.code, refusal.fix) == ("architecture-removed", ("take vLLM 0.25.0, or another model",))
    assert removed_after("vllm", "0.25.0", "TeleChatForCausalLM") is None
    assert removed_after("vllm", "0.27.1", "LlamaForCausalLM") is None


def test_what_float32_takes_is_told_in_bytes(planned: Callable[..., Plan]) -> None:
    checkpoint = llama(model_type="gemma3_text")
    [refusal] = planned("v100x2-pcie", {}, checkpoint).refusals
    assert refusal.code == "dtype-float16" and refusal.fix == ("dtype: float32",)
    assert "29.9 GiB for its weights in place of 15.0" in refusal.why
    assert codes(planned("a100x2-80g", {"serve.dtype": "bfloat16"}, checkpoint)) == []


def test_the_makers_own_builds_are_said_to_lack_code_for_volta() -> None:
    assert describe(CONFIG).layers == 32

    def notes(gpu: str, version: str) -> list[str]:
        plan = for_cards(gpu, 1, llama(small=True), version=version, max_model_len="2048")
        return [each for each in plan.warnings if "hold no code for compute capability 7.0" in each]

    assert len(notes("v100-32g", "0.27.1")) == 1
    assert notes("v100-32g", "0.19.1") == notes("t4", "0.27.1") == []
