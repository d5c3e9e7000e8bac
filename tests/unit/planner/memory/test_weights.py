"""The weights of one rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onecat.checkpoints import Checkpoint, StoredTensors
from onecat.planner.memory import Device
from onecat.planner.memory.parameters import parameters, parameters_alike, stem_of
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.weights import rotary_bytes, weight_bytes
from tests.unit.planner.memory.examples import (
    A100,
    ALL,
    B200,
    FP8_BLOCKS,
    H200,
    MIXED,
    NVFP4,
    SMALL,
    V100,
    checkpoint,
    only,
    settings,
)

LAYERS = 4


def held(of: Checkpoint, *words: str, device: Device = H200, stage: Stage = ALL, **flags: object) -> int:
    """Bytes that the first rank holds of the weights whose names have one of the words."""
    kept = only(of, *words)
    return weight_bytes(kept, settings(kept, device, max_model_len=1024, **flags), stage, device)


@pytest.mark.parametrize("ranks", [1, 2])
def test_rows_and_columns_are_divided(ranks: int) -> None:
    model = checkpoint(SMALL)
    assert held(model, "q_proj", tensor_parallel_size=ranks) == LAYERS * 1024 * 1024 * 2 // ranks
    assert held(model, "down_proj", tensor_parallel_size=ranks) == LAYERS * 1024 * 4096 * 2 // ranks


def test_norms_are_whole_on_every_rank() -> None:
    assert held(checkpoint(SMALL), "input_layernorm", tensor_parallel_size=4) == LAYERS * 1024 * 2


def test_key_value_heads_are_repeated_when_there_are_more_ranks_than_heads() -> None:
    model = checkpoint(SMALL)
    assert held(model, "k_proj", tensor_parallel_size=2) == LAYERS * 64 * 1024 * 2
    assert held(model, "k_proj", tensor_parallel_size=8) == LAYERS * 64 * 1024 * 2


def test_a_vocabulary_is_padded_to_64_before_it_is_divided() -> None:
    assert held(checkpoint(SMALL), "embed_tokens", tensor_parallel_size=2) == 1024 // 2 * 1024 * 2


def test_a_tied_head_is_held_once_and_again_on_the_last_stage() -> None:
    tied = checkpoint(SMALL, tie_word_embeddings=True)
    embedding = 1024 * 1024 * 2
    assert held(tied, "embed_tokens", "lm_head") == embedding
    first, last = Stage(range(2), True, False), Stage(range(2, 4), False, True)
    assert held(tied, "embed_tokens", stage=first) == held(tied, "embed_tokens", stage=last) == embedding


def test_a_stage_holds_its_layers() -> None:
    model = checkpoint(SMALL)
    first, last = Stage(range(1), True, False), Stage(range(1, 4), False, True)
    assert held(model, "up_proj", stage=last) == 3 * held(model, "up_proj", stage=first)


def test_weights_are_converted_to_the_dtype_that_the_engine_calculates_in() -> None:
    model = checkpoint(SMALL)
    assert held(model, "up_proj", dtype="float32") == 2 * held(model, "up_proj", dtype="float16")


def test_gemma_2_is_forced_to_float32_before_ampere() -> None:
    gemma = checkpoint(SMALL, model_type="gemma2")
    assert held(gemma, "up_proj", device=V100) == 2 * held(gemma, "up_proj", device=A100)


def test_experts_are_divided_or_dealt_out() -> None:
    model = checkpoint(MIXED)
    experts = LAYERS * 8 * 3 * 1024 * 512 * 2
    assert held(model, "mlp.experts", tensor_parallel_size=2) == experts // 2
    assert held(model, "mlp.experts", tensor_parallel_size=2, enable_expert_parallel=True) == experts // 2
    assert held(model, "mlp.gate.weight", tensor_parallel_size=2) == LAYERS * 8 * 1024 * 2


def test_fp8_blocks_stay_as_stored_where_the_card_has_fp8() -> None:
    model = checkpoint(SMALL, quantization_config=FP8_BLOCKS)
    weight = LAYERS * (1024 * 4096 + 1024 // 128 * 4096 // 128 * 4)
    assert held(model, "up_proj") == weight


def test_panels_on_volta_have_a_scale_for_each_row_and_whole_panels() -> None:
    fp8 = checkpoint(SMALL, quantization_config=FP8_BLOCKS)
    blocks = 1024 // 128 * 4096 // 128 * 4
    assert held(fp8, "up_proj", device=V100) == LAYERS * (1024 * 4096 + blocks + 4096 * 4)
    nvfp4 = checkpoint(SMALL, quantization_config=NVFP4)
    whole = LAYERS * (1024 * 4096 * 9 // 16 + 4096 * 4)
    assert whole < held(nvfp4, "up_proj", device=V100) < whole + LAYERS * 16
    ragged = checkpoint({**SMALL, "intermediate_size": 4112}, quantization_config=NVFP4)
    padded = LAYERS * (1024 * 4128 * 9 // 16 + 4112 * 4)
    assert padded < held(ragged, "up_proj", device=V100) < padded + LAYERS * 16
    assert held(ragged, "up_proj", device=V100, dtype="float32") < padded


def test_marlin_keeps_a_scale_for_each_row_of_a_block() -> None:
    model = checkpoint(SMALL, quantization_config=FP8_BLOCKS)
    assert held(model, "up_proj", device=A100) == LAYERS * (1024 * 4096 + 1024 // 128 * 4096 * 2)


def test_nvfp4_takes_nine_sixteenths_of_a_byte() -> None:
    model = checkpoint(SMALL, quantization_config=NVFP4)
    blocks = LAYERS * 1024 * 4096 * 9 // 16
    assert blocks < held(model, "up_proj", device=A100) < blocks + LAYERS * 16
    assert blocks < held(model, "up_proj", device=B200) < blocks + LAYERS * 16


def test_mxfp4_experts_are_padded_for_marlin() -> None:
    gpt_oss = {
        **SMALL,
        "architectures": ["GptOssForCausalLM"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    }
    padded = 3 * 3072 * 2944 * 17 // 32
    bias = 2 * 2880 + 2880
    assert held(checkpoint(gpt_oss), "mlp.experts", device=A100) == LAYERS * 4 * (padded + 2 * bias)
    on_hopper = 3 * 2880 * 2944 // 2 + 3 * 2880 * 2880 // 32
    assert held(checkpoint(gpt_oss), "mlp.experts") == LAYERS * 4 * (on_hopper + 4 * bias)


def test_a_checkpoint_may_be_quantised_while_it_is_loaded() -> None:
    model = checkpoint(SMALL)
    plain = held(model, "up_proj")
    assert held(model, "up_proj", quantization="fp8") == plain // 2 + LAYERS * 4
    assert held(model, "up_proj", quantization="bitsandbytes") == plain // 4 + LAYERS * 1024 * 4096 // 64 * 4
    assert held(model, "lm_head", quantization="fp8") == held(model, "lm_head")


def test_latent_attention_keeps_keys_of_kv_b_proj_twice_and_all_of_it_when_quantised() -> None:
    deepseek = {
        **SMALL,
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "moe_intermediate_size": 512,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
    }
    model = checkpoint(deepseek)
    weight = LAYERS * 16 * 256 * 512
    assert held(model, "kv_b_proj") == weight * 3
    blocks = weight // 128 // 128 * 4
    quantised = checkpoint(deepseek, quantization_config=FP8_BLOCKS)
    assert held(quantised, "kv_b_proj") == weight + blocks + weight * 2
    assert held(model, "kv_a_proj", tensor_parallel_size=2) == held(model, "kv_a_proj")


def test_the_tables_of_sines_are_as_long_as_the_longest_context() -> None:
    model = checkpoint(SMALL)
    assert rotary_bytes(model.architecture, settings(model)) == 4096 * 64 * 2
    stretched = checkpoint(SMALL, rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert rotary_bytes(stretched.architecture, settings(stretched)) == 8 * 4096 * 64 * 2
    partial = checkpoint(SMALL, partial_rotary_factor=0.25)
    assert rotary_bytes(partial.architecture, settings(partial)) == 4096 * 16 * 2


@pytest.mark.parametrize("quantization", [None, FP8_BLOCKS, NVFP4])
@pytest.mark.parametrize("config", [SMALL, MIXED])
def test_headers_come_to_the_same_as_the_configuration(config: dict[str, object], quantization: object) -> None:
    fields = {} if quantization is None else {"quantization_config": quantization}
    model = checkpoint(config, **fields)
    with_headers = replace(model, tensors=tuple(each.row for each in parameters(model)))
    asked = settings(model, tensor_parallel_size=2)
    assert weight_bytes(with_headers, asked, ALL, H200) == weight_bytes(model, asked, ALL, H200)


@pytest.mark.parametrize("config", [SMALL, MIXED])
def test_layers_are_told_apart_by_all_that_decides_about_their_bytes(config: dict[str, object]) -> None:
    model = checkpoint(config, quantization_config=FP8_BLOCKS)
    groups = parameters_alike(model)
    assert sum(len(layers) for _, layers in groups) == len(parameters(model)) > len(groups)
    first = weight_bytes(model, settings(model), Stage(range(1), True, False), H200)
    last = weight_bytes(model, settings(model), Stage(range(1, LAYERS), False, True), H200)
    tables = rotary_bytes(model.architecture, settings(model))
    assert first + last - tables == weight_bytes(model, settings(model), ALL, H200)


def test_layers_with_other_heads_are_no_group() -> None:
    model = checkpoint(SMALL)
    (cache,) = model.architecture.caches
    heads = (replace(cache, layers=(0, 1)), replace(cache, layers=(2, 3), key_value_heads=1))
    other = replace(model, architecture=model.architecture.replaced(caches=heads))
    assert {layers for each, layers in parameters_alike(other) if "k_proj" in each.row.name} == {(0, 1), (2, 3)}


def test_tensors_that_the_architecture_has_not_are_counted_by_their_names() -> None:
    row = StoredTensors("model.layers.2.self_attn.new_thing.weight", "BF16", (10, 10), 1, 200)
    draft = StoredTensors("mtp.layers.0.mlp.up_proj.weight", "BF16", (10, 10), 1, 200)
    model = replace(only(checkpoint(SMALL), "nothing"), tensors=(row, draft))
    assert weight_bytes(model, settings(model), ALL, H200) == 200
    assert weight_bytes(model, settings(model), Stage(range(2), True, False), H200) == 0
    drafting = settings(model, speculative_config={"method": "mtp", "num_speculative_tokens": 1})
    assert weight_bytes(model, drafting, ALL, H200) == 400


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("model.layers.0.mlp.up_proj.weight_packed", "model.layers.0.mlp.up_proj"),
        ("model.layers.0.mlp.experts.gate_up_proj_blocks", "model.layers.0.mlp.experts.gate_up_proj"),
        ("model.layers.0.linear_attn.A_log", "model.layers.0.linear_attn.A_log"),
    ],
)
def test_a_tensor_belongs_to_its_module(name: str, stem: str) -> None:
    assert stem_of(name) == stem
