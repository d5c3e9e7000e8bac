"""Which layers attend to a window, share keys and values, or have heads of another size."""

from __future__ import annotations

import pytest

from onecat.checkpoints.architectures import KeyValueLayers, describe
from tests.unit.checkpoints.architectures.test_dense_models import by_name, described, key_values


def test_gemma_2_alternates_and_gemma_3_has_five_local_layers_for_a_global_one() -> None:
    local, whole = key_values(described("google/gemma-2-9b"))
    assert (local.window, local.layers[:3], whole.window, whole.layers[:3]) == (4096, (0, 2, 4), None, (1, 3, 5))
    local, whole = key_values(described("google/gemma-3-12b-it"))
    assert (local.window, whole.window, whole.layers) == (1024, None, (5, 11, 17, 23, 29, 35, 41, 47))


def test_gemma_3_has_the_heads_of_its_configuration_class_where_the_file_leaves_them_out() -> None:
    architecture = described("google/gemma-3-4b-it")
    assert "num_attention_heads" not in by_name("google/gemma-3-4b-it")["text_config"]
    assert {(each.query_heads, each.key_value_heads, each.head_size) for each in key_values(architecture)} == {
        (8, 4, 256)
    }
    assert architecture.vocabulary_size == 262208 and architecture.attention_heads == 8


def test_layer_types_decide_before_any_pattern() -> None:
    config = by_name("google/gemma-3-1b-it") | {
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    }
    assert [(each.window, each.layers) for each in key_values(describe(config))] == [(None, (0, 2)), (512, (1,))]


def test_global_layers_of_gemma_4_have_fewer_and_larger_heads_and_no_values_of_their_own() -> None:
    architecture = described("google/gemma-4-31B-it")
    local, whole = key_values(architecture)
    assert (len(local.layers), local.key_value_heads, local.head_size, local.window) == (50, 16, 256, 1024)
    assert (len(whole.layers), whole.key_value_heads, whole.head_size, whole.window) == (10, 4, 512, None)
    names = {each.name for each in architecture.weights}
    prefix = "model.language_model.layers"
    assert f"{prefix}.4.self_attn.v_proj.weight" in names and f"{prefix}.5.self_attn.v_proj.weight" not in names


def test_the_last_layers_of_the_small_gemma_4_read_keys_and_values_of_others() -> None:
    architecture = described("google/gemma-4-E2B-it")
    assert sorted(layer for each in key_values(architecture) for layer in each.layers) == list(range(15))
    shapes = {each.name: each.shape for each in architecture.weights}
    prefix = "model.language_model.layers"
    assert (shapes[f"{prefix}.14.mlp.up_proj.weight"], shapes[f"{prefix}.15.mlp.up_proj.weight"]) == (
        (6144, 1536),
        (12288, 1536),
    )


def test_the_last_layer_of_gemma_4_is_global_whatever_is_stated() -> None:
    config = by_name("google/gemma-4-31B-it")
    text = config["text_config"] | {"num_hidden_layers": 2, "layer_types": ["sliding_attention"] * 2}
    local, whole = key_values(describe({**config, "text_config": text}))
    assert (local.layers, whole.layers, whole.head_size) == ((0,), (1,), 512)


def test_a_window_is_every_layers_in_mistral_and_phi_and_none_when_it_is_0_or_null() -> None:
    name = "mistralai/Mistral-7B-v0.1"
    assert [(len(each.layers), each.window) for each in key_values(described(name))] == [(32, 4096)]
    assert [each.window for each in key_values(described("microsoft/Phi-3-mini-4k-instruct"))] == [2047]
    for none in (None, 0):
        assert [each.window for each in key_values(described(name, sliding_window=none))] == [None]


def test_qwen_uses_its_window_only_when_told_to_and_from_max_window_layers_on() -> None:
    name = "Qwen/Qwen2.5-7B"
    assert [each.window for each in key_values(described(name))] == [None]
    used = described(name, use_sliding_window=True, max_window_layers=21, sliding_window=4096)
    assert [(each.window, each.layers[0]) for each in key_values(used)] == [(None, 0), (4096, 21)]
    config = by_name(name)
    silent = {field: value for field, value in config.items() if field != "use_sliding_window"}
    assert [each.window for each in key_values(describe(silent))] == [None]


def test_some_layers_of_llama_3_2_vision_keep_keys_and_values_of_the_picture() -> None:
    own, picture = key_values(described("meta-llama/Llama-3.2-11B-Vision-Instruct"))
    assert (own.cross, len(own.layers)) == (False, 32)
    assert (picture.cross, picture.layers) == (True, (3, 8, 13, 18, 23, 28, 33, 38))


def test_heads_are_as_stated_or_shared_out_of_the_hidden_size() -> None:
    assert key_values(described("mistralai/Mistral-Nemo-Instruct-2407"))[0].head_size == 128
    assert key_values(described("meta-llama/Llama-2-7b-hf"))[0].head_size == 4096 // 32
    alone = {"num_key_value_heads": None}
    assert key_values(described("meta-llama/Llama-3.1-8B", **alone)) == [
        KeyValueLayers(tuple(range(32)), 32, 32, 128, 128)
    ]


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("Qwen/Qwen2.5-0.5B", None),
        ("Qwen/Qwen2.5-7B", "lm_head.weight"),
        ("google/gemma-2-2b", None),
        ("internlm/internlm2_5-7b-chat", "output.weight"),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "language_model.lm_head.weight"),
        ("EleutherAI/pythia-6.9b", "embed_out.weight"),
    ],
)
def test_the_output_head_is_the_embedding_where_the_file_or_its_class_says_so(name: str, head: str | None) -> None:
    architecture = described(name)
    assert architecture.tied_embeddings == (head is None)
    assert [each.name for each in architecture.weights if each.kind == "head"] == ([head] if head else [])


def test_experts_of_gemma_4_are_one_tensor_each_and_modules_of_their_own_when_quantised() -> None:
    config = by_name("google/gemma-4-31B-it")
    text = config["text_config"] | {
        "enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 704,
        "num_hidden_layers": 1,
    }  # fmt: skip
    stated = {**config, "text_config": text}
    plain, quantised = describe(stated), describe({**stated, "quantization_config": {"quant_method": "modelopt"}})
    experts = [[each.name for each in of.weights if ".experts." in each.name] for of in (plain, quantised)]
    prefix = "model.language_model.layers.0.experts."
    assert experts[0] == [f"{prefix}gate_up_proj", f"{prefix}down_proj"]
    assert experts[1] == [f"{prefix}*.{name}.weight" for name in ("gate_proj", "up_proj", "down_proj")]
    assert plain.parameters == quantised.parameters
