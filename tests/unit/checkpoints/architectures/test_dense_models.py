"""What config.json says a dense model is made of: parameters as published, caches as the engine keeps them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints.architectures import Architecture, KeyValueLayers, describe

HERE = Path(__file__).parent
MODELS = json.loads((HERE / "dense_models.json").read_text(encoding="utf-8"))
"""Fields of published config.json files that matter, as known, and where a size of the model is stated. Few files were
read again, and then `source` says so; models that their own files confirm are in ../published_totals.json."""

SHARED = Path(__file__).parents[5] / "shared" / "fixtures" / "config"
CAPTURED = {
    "config_Qwen--Qwen3-32B.json": 32.8e9,
    "config_Qwen--Qwen3-32B-FP8-Static-PerTensor.json": 32.8e9,
    "config_meta-llama--Meta-Llama-3.1-70B.json": 70.6e9,
    "config_google--gemma-4-26B-A4B.json": 25.2e9 + 0.55e9,
    "config_nvidia--Gemma-4-26B-A4B-NVFP4.json": 25.2e9 + 0.55e9,
}
"""Published sizes of real files; of Gemma 4 (https://ai.google.dev/gemma/docs/core/model_card_4) with its tower."""


def by_name(name: str) -> dict[str, Any]:
    return next(each["config"] for each in MODELS if each["model"] == name)


def described(name: str, **changes: Any) -> Architecture:
    return describe({**by_name(name), **changes})


def key_values(architecture: Architecture) -> list[KeyValueLayers]:
    return [each for each in architecture.caches if isinstance(each, KeyValueLayers)]


@pytest.mark.parametrize("model", MODELS, ids=[each["model"] for each in MODELS])
def test_parameters_are_within_a_percent_of_the_published_size(model: dict[str, Any]) -> None:
    architecture = describe(model["config"])
    assert architecture.estimated is None
    assert architecture.parameters == pytest.approx(model["parameters"], rel=0.01)


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_configurations_have_their_published_size(name: str) -> None:
    path = SHARED / name
    if not path.is_file():
        pytest.skip("the captured configurations are not beside the project")
    architecture = describe(json.loads(path.read_text(encoding="utf-8")))
    assert architecture.estimated is None
    assert architecture.parameters == pytest.approx(CAPTURED[name], rel=0.01)


@pytest.mark.parametrize("model", MODELS, ids=[each["model"] for each in MODELS])
def test_each_tensor_is_told_once_and_each_layer_keeps_keys_and_values_at_most_once(model: dict[str, Any]) -> None:
    architecture = describe(model["config"])
    names = [each.name for each in architecture.weights]
    assert len(names) == len(set(names))
    kept = [layer for each in architecture.caches for layer in each.layers]
    assert len(kept) == len(set(kept)) and set(kept) <= set(range(architecture.layers or 0))
    own = {each.layer for each in architecture.weights if each.part == "language"} - {None}
    assert own == set(range(architecture.layers or 0))
    assert all(size > 0 for each in architecture.weights for size in each.shape)


@pytest.mark.parametrize("model", MODELS, ids=[each["model"] for each in MODELS])
def test_keys_and_values_have_the_rows_of_the_projections_that_make_them(model: dict[str, Any]) -> None:
    architecture = describe(model["config"])
    shapes = {each.name: each.shape for each in architecture.weights if each.part == "language"}
    for group in key_values(architecture):
        keys, values = group.key_value_heads * group.head_size, group.key_value_heads * group.value_head_size
        queries = group.query_heads * group.head_size
        for layer in group.layers:
            of_layer = {
                name.rpartition(".")[0].rpartition(".")[2]: shape[0]
                for name, shape in shapes.items()
                if f".{layer}." in f".{name}" and name.endswith(".weight") and len(shape) == 2
            }
            if "k_proj" in of_layer:
                assert (of_layer["q_proj"], of_layer["k_proj"]) == (queries, keys)
                assert of_layer.get("v_proj", values) == values
            else:
                fused = next(of_layer[each] for each in FUSED if each in of_layer)
                assert fused == queries + keys + values


FUSED = ("qkv_proj", "wqkv", "c_attn", "query_key_value")


def test_a_hundred_layers_are_described_within_30_ms() -> None:
    config = by_name("Qwen/Qwen3-14B") | {"num_hidden_layers": 100}
    describe(config)
    fastest = min(_seconds(config) for _ in range(10))
    assert fastest < 0.030


def _seconds(config: dict[str, Any]) -> float:
    start = time.perf_counter()
    describe(config)
    return time.perf_counter() - start
