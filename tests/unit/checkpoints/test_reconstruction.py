"""Architectures that no family describes, told from their tensors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.checkpoints import StoredTensors, describe, from_tensors, inspect, write_tiny_checkpoint
from onecat.checkpoints.architectures import Architecture, Weight
from onecat.checkpoints.quantization import read_quantization
from onecat.checkpoints.quantization.storage import stored_tensors
from tests.unit.checkpoints.architectures.test_dense_models import MODELS, by_name, key_values

ALIKE = [each for each in MODELS if "gpt2" not in each["model"] and "Vision" not in each["model"]]
"""All but GPT-2, whose configuration states its heads by other names, and Llama Vision with layers that cross."""


def rows_of(weights: tuple[Weight, ...], claim: dict[str, Any] | None = None) -> tuple[StoredTensors, ...]:
    quantization = read_quantization({"config.json": {"quantization_config": claim}}) if claim else None
    return tuple(
        row
        for weight in weights
        for row in stored_tensors(
            weight,
            quantization.scheme_for(weight) if quantization else None,
            quantization.container if quantization else None,
            "bfloat16",
        )
    )


def unknown(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "architectures": ["FutureForCausalLM"]}


def without_windows(architecture: Architecture) -> dict[Any, Any]:
    """Groups of layers by what they keep, layers with a window and those without together."""
    groups: dict[Any, list[int]] = {}
    for each in key_values(architecture):
        groups.setdefault(replace(each, layers=(), window=None), []).extend(each.layers)
    return {each: sorted(layers) for each, layers in groups.items()}


@pytest.mark.parametrize("model", ALIKE, ids=[each["model"] for each in ALIKE])
def test_tensors_tell_the_same_as_the_configuration_of_a_known_architecture(model: dict[str, Any]) -> None:
    known = describe(model["config"])
    told = from_tensors(describe(unknown(model["config"])), rows_of(known.weights), model["config"])
    assert told.parameters == known.parameters
    assert without_windows(told) == without_windows(known)
    assert (told.layers, told.tied_embeddings) == (known.layers, known.tied_embeddings)
    assert told.estimated and "FutureForCausalLM" in told.estimated


def test_windows_are_taken_only_where_layers_are_named_for_them() -> None:
    config = unknown(by_name("google/gemma-3-1b-it"))
    rows = rows_of(describe(by_name("google/gemma-3-1b-it")).weights)
    told = from_tensors(describe(config), rows, config)
    assert [each.window for each in key_values(told)] == [None]
    assert "all are taken to keep every token" in (told.estimated or "")
    named = config | {"layer_types": ["sliding_attention", "full_attention"] * 13}
    assert [each.window for each in key_values(from_tensors(describe(named), rows, named))] == [512, None]


@pytest.mark.parametrize(
    "claim",
    [
        {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]},
    ],
    ids=lambda each: each["quant_method"],
)
def test_packed_tensors_stand_for_the_elements_that_they_hold(claim: dict[str, Any]) -> None:
    config = by_name("Qwen/Qwen3-8B")
    known = describe(config)
    quantization = read_quantization({"config.json": {"quantization_config": claim}})
    told = from_tensors(describe(unknown(config)), rows_of(known.weights, claim), config, quantization)
    assert told.parameters == known.parameters
    assert without_windows(told) == without_windows(known)


def test_latent_attention_is_told_by_its_projection_and_the_norm_over_it() -> None:
    prefix = "model.layers.0.self_attn."
    rows = (
        StoredTensors(f"{prefix}kv_a_proj_with_mqa.weight", "BF16", (576, 7168), 1, 2 * 576 * 7168),
        StoredTensors(f"{prefix}kv_a_layernorm.weight", "BF16", (512,), 1, 1024),
    )
    (latent,) = from_tensors(Architecture(estimated="unknown", attention_heads=128), rows).caches
    assert (latent.latent_rank, latent.rope_size, latent.query_heads) == (512, 64, 128)  # type: ignore[union-attr]


def test_layers_with_a_state_are_left_out_and_that_is_said() -> None:
    rows = (
        StoredTensors("model.layers.0.linear_attn.A_log", "F32", (32,), 1, 128),
        StoredTensors("model.layers.0.linear_attn.conv1d.weight", "BF16", (8192, 1, 4), 1, 65536),
        StoredTensors("model.layers.1.self_attn.k_proj.weight", "BF16", (256, 2048), 1, 2**20),
        StoredTensors("model.layers.1.self_attn.q_proj.weight", "BF16", (2048, 2048), 1, 2**23),
        StoredTensors("model.layers.1.self_attn.v_proj.weight", "BF16", (256, 2048), 1, 2**20),
    )
    told = from_tensors(Architecture(estimated="unknown"), rows)
    assert [each.layers for each in told.caches] == [(1,)]
    assert "layer 0 keeps a state whose size is not told" in (told.estimated or "")
    assert "heads of 128 elements are assumed" in (told.estimated or "")


def test_a_known_architecture_and_one_without_tensors_stay_as_they_are() -> None:
    known = describe(by_name("Qwen/Qwen3-8B"))
    assert from_tensors(known, (StoredTensors("x", "F32", (1,), 1, 4),)) is known
    nothing = Architecture(estimated="unknown")
    assert from_tensors(nothing, ()) is nothing


def test_a_checkpoint_of_an_unknown_architecture_is_inspected_with_its_caches(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path / "tiny")
    known = inspect(directory).architecture
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(unknown(config)))
    told = inspect(directory).architecture
    assert told.caches == known.caches and told.parameters == known.parameters
    assert told.estimated and not known.estimated


ROWS = st.lists(
    st.builds(
        StoredTensors,
        st.sampled_from(
            [
                "model.layers.0.self_attn.k_proj.weight", "model.layers.1.self_attn.qkv_proj.weight",
                "model.layers.999999999.self_attn.k_proj.weight", "layers.1.kv_a_proj_with_mqa.weight",
                "layers.1.kv_a_layernorm.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight", "", ".", "weight",
                "model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.*.w2.weight", "embed.weight",
                "model.layers.0.self_attn.q_proj.qweight", "model.layers.0.self_attn.q_proj.scales",
            ]
        )
        | st.text(max_size=20),
        st.sampled_from(["BF16", "F8_E4M3", "U8", "I32", "F99"]),
        st.lists(st.integers(0, 2**62), max_size=4).map(tuple),
        st.integers(1, 300),
        st.integers(0, 2**62),
    ),
    max_size=8,
)  # fmt: skip


@given(ROWS, st.dictionaries(st.sampled_from(["head_dim", "sliding_window", "layer_types"]), st.integers(0, 3)))
@settings(max_examples=40, deadline=None)
def test_whatever_tensors_there_are_an_architecture_is_told(rows: list[StoredTensors], config: dict[str, Any]) -> None:
    told = from_tensors(describe(config), rows, config)
    assert told.estimated and told.parameters >= 0
    assert (told.layers or 0) <= 2000
