"""Whatever JSON a config.json holds, it is described: fully, or with the reason why not."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.checkpoints.architectures import Architecture, describe
from onecat.checkpoints.architectures.description import MOST_LAYERS
from onecat.checkpoints.architectures.registry import families
from tests.unit.checkpoints.architectures.test_dense_models import MODELS, by_name
from tests.unit.checkpoints.architectures.test_sparse_models import MODELS as SPARSE_MODELS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
TELLING = st.sampled_from([0, 1, 2, -1, 10**12, 2**63, None, True, "", [], {}, [None], [[]], {"rope_type": 1}, 1.5])


def small(config: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(config)
    for part in (config, config.get("text_config"), config.get("vision_config"), config.get("audio_config")):
        for field in ("num_hidden_layers", "depth", "n_layer", "num_global_layers"):
            if isinstance(part, dict) and field in part:
                part[field] = 2
    return config


SMALL = [small(each["config"]) for each in (*MODELS, *SPARSE_MODELS)]


def whole(architecture: Architecture) -> bool:
    """Whether it is one that callers can go on with: told, or with a reason, and hashable throughout."""
    assert architecture.parameters >= 0
    hash((architecture.caches, architecture.encoders, architecture.experts, architecture.weights))
    return bool(architecture.estimated) or bool(architecture.weights)


@given(st.dictionaries(st.text(max_size=12), JSON, max_size=5))
@settings(max_examples=25, deadline=None)
def test_any_object_is_described(document: dict[str, Any]) -> None:
    assert whole(describe(document))


@given(st.sampled_from(SMALL), st.data())
@settings(max_examples=60, deadline=None)
def test_a_configuration_with_fields_left_out_or_of_another_type_is_described(
    config: dict[str, Any], data: st.DataObject
) -> None:
    config = copy.deepcopy(config)
    parts = [each for each in (config, *config.values()) if isinstance(each, dict)]
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(parts))
        if part:
            field = data.draw(st.sampled_from(sorted(part)))
            if data.draw(st.booleans()):
                part[field] = data.draw(TELLING | JSON)
            else:
                del part[field]
    assert whole(describe(config))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_family_with_the_fields_of_another_is_described(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from(SMALL)) | {"architectures": [data.draw(st.sampled_from(sorted(families())))]}
    assert whole(describe(config))


@pytest.mark.parametrize("field", ["num_hidden_layers", "depth"])
@pytest.mark.parametrize("layers", [MOST_LAYERS + 1, 10**12, 2**63])
def test_more_layers_than_any_model_has_are_refused_at_once_and_said(field: str, layers: int) -> None:
    config = copy.deepcopy(by_name("Qwen/Qwen2.5-VL-7B-Instruct"))
    config["vision_config" if field == "depth" else field] = {"depth": layers} if field == "depth" else layers
    start = time.perf_counter()
    architecture = describe(config)
    assert time.perf_counter() - start < 0.1
    assert architecture.weights == () and f"{layers} for `{field}`" in (architecture.estimated or "")


def test_what_is_missing_is_named() -> None:
    config = {field: value for field, value in by_name("Qwen/Qwen3-8B").items() if field != "intermediate_size"}
    assert describe(config).estimated == "config.json has no whole number `intermediate_size`"
    assert describe(config).attention_heads == 32


@pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config"])
def test_the_language_models_part_is_found_under_the_names_that_files_use(name: str) -> None:
    config = by_name("Qwen/Qwen3-8B")
    inner = {field: value for field, value in config.items() if field != "architectures"}
    assert describe({"architectures": config["architectures"], name: inner}).caches == describe(config).caches


def test_a_description_does_not_change_the_document() -> None:
    for config in SMALL:
        before = json.dumps(config)
        describe(config)
        assert json.dumps(config) == before


@pytest.mark.parametrize("config", SMALL, ids=lambda config: config["architectures"][0])
def test_no_configuration_gives_weights_or_caches_of_size_0(config: dict[str, Any]) -> None:
    config = copy.deepcopy(config)
    for part in (config, config.get("text_config")):
        if isinstance(part, dict) and "num_attention_heads" in part:
            part |= {"head_dim": 0, "num_attention_heads": 10**6, "num_key_value_heads": 10**6}
    found = describe(config)
    assert whole(found)
    assert all(0 not in each.shape for each in found.weights)
    assert found.estimated or all(getattr(each, "head_size", 1) for each in found.caches)


def test_a_head_of_0_elements_is_told_and_not_replaced() -> None:
    name = next(each["model"] for each in MODELS if each["config"]["architectures"] == ["Qwen3ForCausalLM"])
    config = {**by_name(name), "head_dim": 0}
    assert describe(config).estimated == "config.json has 0 for `head_dim`"


@pytest.mark.parametrize("factor", [float("inf"), float("nan"), 10**400, 1e300, -1, 0])
def test_positions_are_stretched_by_no_more_than_a_model_can_be(factor: float) -> None:
    config = {**SMALL[0], "rope_scaling": {"rope_type": "linear", "factor": factor}}
    assert describe(config).rotary_stretch == 1.0
