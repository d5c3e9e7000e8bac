"""Whatever one field of a configuration holds, `onecat model inspect` tells it or ends with one clear error.

Each field of each configuration, of published models and of every way to write quantisation, takes odd values in turn:
negative, 0, huge, infinite, not a number, and of other types.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.checkpoints import Checkpoint
from onecat.checkpoints.architectures import StateLayers, describe
from onecat.checkpoints.inspection import described
from onecat.checkpoints.quantization import read_quantization
from onecat.checkpoints.quantization.storage import stored_tensors
from onecat.checkpoints.sources import Source
from onecat.checkpoints.tensors import StoredTensors
from onecat.cli.model_inspect import inspection_of
from onecat.errors import OnecatError
from onecat.render.models import model_document, model_text
from tests.unit.checkpoints.architectures.test_any_document import SMALL, small
from tests.unit.checkpoints.architectures.test_dense_models import by_name
from tests.unit.checkpoints.quantization.claims import CLAIMS

CONFIGS = Path(__file__).parents[4] / "shared" / "fixtures" / "config"
Documents = dict[str, dict[str, Any]]
Place = tuple[str | int, ...]

ODD: tuple[Any, ...] = (
    -1, 0, 1, -4, 3, 17, 64, 10**12, -(2**63), 10**400, float("inf"), float("-inf"), float("nan"), -0.5, 0.5, 1e308,
    True, False, None, "", "b", "int0", "fp", "0", "-1", "auto", "*", "re:(", "re:", "-:(", [], [1], [0, 0], [-1, -1],
    [128, "b"], [True, True], [None], [[]], [{}], [[["a"]]], {}, {"a": 1}, {"": {}}, {"a": [1]}, {"(": {"bits": 0}},
    {"weight": []}, {"_default": 1}, {"default": {"_type": 3, "_data": [1]}}, [float("inf"), float("nan")],
    [10**12, 10**12],
)  # fmt: skip

FIELDS = (
    "quant_method", "bits", "w_bit", "nbits", "num_bits", "weight_bits", "act_bits", "group_size", "q_group_size",
    "block_size", "weight_block_size", "block_structure", "scale_fmt", "format", "packing_format", "data_type",
    "act_data_type", "extra_config", "dynamic", "config_groups", "targets", "ignore", "exclude", "exclude_modules",
    "modules_to_not_convert", "modules_in_block_to_quantize", "block_name_to_quantize", "quant_algo", "quantization",
    "quantized_layers", "quant_type", "quant_type_kwargs", "module_fqn_to_config", "module_quant_configs",
    "layer_quant_config", "global_quant_config", "kv_cache_scheme", "kv_cache_quant_algo", "zero_point", "desc_act",
    "lm_head", "export", "weights", "mm_tokens_per_image", "vision_soft_tokens_per_image", "num_kv_shared_layers",
    "subsampling_conv_channels", "sscp_conv_channel_size", "layer_types", "rope_scaling", "rope_parameters",
    "text_config", "vision_config", "audio_config", "sliding_window", "dtype", "tie_word_embeddings", "architectures",
)  # fmt: skip
"""Fields that a configuration may get beside its own."""


def claimed(stated: dict[str, Any]) -> Documents:
    return {"config.json": {**small(by_name("Qwen/Qwen3-8B")), "quantization_config": stated}}


def published() -> Iterator[Documents]:
    for path in sorted(CONFIGS.glob("*config_*.json")) if CONFIGS.is_dir() else ():
        document = json.loads(path.read_text(encoding="utf-8"))
        if path.name.startswith("hf_"):
            yield {"config.json": small(by_name("Qwen/Qwen3-8B")), "hf_quant_config.json": document}
        else:
            yield {"config.json": small(document)}


OF_METHODS: tuple[dict[str, Any], ...] = (
    {"quant_method": "torchao", "quant_type": {"default": {
        "_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": {
            "_default": {"_type": "IntxWeightOnlyConfig", "_data": {"group_size": 32}},
            "model.layers.0.mlp.down_proj": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}}}}},
    {"quant_method": "quark", "layer_quant_config": {"*down_proj": {"weight": {
        "dtype": "int4", "qscheme": "per_group", "group_size": 32}}}, "global_quant_config": {"weight": [
            {"dtype": "fp8_e4m3"}, {"dtype": "int8", "qscheme": "per_channel"}]}},
    {"quant_method": "gemma", "num_bits": 4, "quantize_embeddings": True, "module_quant_configs": {
        "down_proj": {"num_bits": 2}}},
    {"quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": {"+:.*down.*": {"bits": 8, "group_size": 64},
                                                                      "-:.*up.*": {}}},
    {"quant_method": "auto-round", "bits": 2, "group_size": 32, "extra_config": {
        "model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 64, "data_type": "int", "act_bits": 8}}},
    {"quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": {
        "model.layers.0.mlp.down_proj": {"quant_algo": "NVFP4", "group_size": 16}}}},
    *({"quant_method": method, "bits": 4, "group_size": 64} for method in ("hqq", "exl3", "gguf", "humming")),
    {"quant_method": "compressed-tensors", "format": "marlin-24", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}}}},
)  # fmt: skip

CASES: tuple[Documents, ...] = (
    *published(),
    *({"config.json": config} for config in SMALL),
    *map(claimed, (*CLAIMS.values(), *OF_METHODS)),
)


def places(value: Any, above: Place = ()) -> Iterator[Place]:
    """Where in a document something stands, with the first two members of each list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*above, key)
        yield from places(each, (*above, key))


PLACES = tuple(tuple(places(documents)) for documents in CASES)


def with_value(documents: Documents, place: Place, value: Any) -> Documents:
    made = copy.deepcopy(documents)
    inside: Any = made
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return made


@functools.cache
def stored(case: int) -> tuple[StoredTensors, ...]:
    """The tensors that a case's own configuration comes to."""
    documents = CASES[case]
    architecture, claim = describe(documents["config.json"]), read_quantization(documents)
    return tuple(
        row
        for weight in architecture.weights
        for row in stored_tensors(
            weight, claim and claim.scheme_for(weight), claim and claim.container, architecture.dtype
        )
    )


def told(documents: Documents, tensors: tuple[StoredTensors, ...] = ()) -> Checkpoint | None:
    """What `onecat model inspect` tells; None when it ends with an error of its own."""
    if not all(isinstance(each, dict) for each in documents.values()):
        return None  # such a file is refused before anything is made of it
    try:
        seen = described(Source("x/config.json", documents, tensors))
        inspection = inspection_of(seen)
        json.dumps(model_document(inspection))
        assert model_text(inspection)
    except OnecatError:
        return None
    return seen


def assert_sizes_are_sizes(seen: Checkpoint) -> None:
    """Nothing that counts is negative, and nothing that must be one of is 0."""
    assert seen.weight_bytes >= 0 and seen.parameters >= 0
    assert all(size > 0 for weight in seen.architecture.weights for size in weight.shape)
    tokens = [each.tokens for each in seen.architecture.encoders if each.tokens is not None]
    assert all(type(each) is int and each > 0 for each in tokens)
    for cache in seen.architecture.caches:
        assert len(cache.layers) <= (seen.architecture.layers or 0) and len(set(cache.layers)) == len(cache.layers)
    for scheme in () if seen.quantization is None else seen.quantization.schemes:
        assert 0 < scheme.bits <= 64 and scheme.packed > 0
        assert scheme.group_size is None or scheme.group_size > 0
        assert scheme.block is None or all(each > 0 for each in scheme.block)
        for weight in seen.architecture.weights[:20]:
            rows = stored_tensors(weight, scheme, seen.quantization.container, None)  # type: ignore[union-attr]
            assert all(row.bytes >= 0 for row in rows)


@given(st.data())
@settings(max_examples=100)
def test_a_configuration_with_one_odd_value_is_told_or_refused(data: st.DataObject) -> None:
    case = data.draw(st.integers(0, len(CASES) - 1))
    place = data.draw(st.sampled_from(PLACES[case]))
    if isinstance(place[-1], str) and data.draw(st.integers(0, 4)) == 0:
        place = (*place[:-1], data.draw(st.sampled_from(FIELDS)))
    documents = with_value(CASES[case], place, data.draw(st.sampled_from(ODD)))
    seen = told(documents, stored(case) if data.draw(st.booleans()) else ())
    if seen is not None:
        assert_sizes_are_sizes(seen)


@pytest.mark.parametrize("stated", [*CLAIMS.values(), *OF_METHODS], ids=lambda stated: stated.get("quant_method", "-"))
def test_every_way_to_write_quantisation_is_told_as_it_is(stated: dict[str, Any]) -> None:
    seen = told(claimed(stated))
    assert seen is not None and seen.quantization is not None and seen.quantization.schemes
    assert_sizes_are_sizes(seen)


@pytest.mark.parametrize(
    ("stated", "scheme", "group"),
    [
        ({"quant_method": "awq", "bits": -4, "group_size": 128}, "int4", 128),
        ({"quant_method": "auto-round", "bits": -2, "group_size": 64}, "int4", 64),
        ({"quant_method": "gemma", "num_bits": -1}, "int4", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": -1}, "nvfp4", 16),
        ({"quant_method": "quasar_nvfp4", "block_size": -16}, "nvfp4", 16),
        ({"quant_method": "fp8", "weight_block_size": [0, 0]}, "fp8-tensor", None),
        ({"quant_method": "hqq", "bits": float("inf"), "group_size": -1}, "hqq", None),
        ({"quant_method": "hqq", "bits": float("nan")}, "hqq", None),
        ({"quant_method": "torchao", "quant_type": {"default": {
            "_type": "Int4WeightOnlyConfig", "_data": {"module_fqn_to_config": [1], "group_size": -64}}}}, "int4", 128),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int0"}}}, "int8", None),
    ],
)  # fmt: skip
def test_a_size_that_cannot_be_one_is_taken_as_not_stated(
    stated: dict[str, Any], scheme: str, group: int | None
) -> None:
    found = read_quantization(claimed(stated))
    assert found is not None
    assert (found.scheme, found.group_size) == (scheme, group)


@pytest.mark.parametrize("tokens", [-5, 0, True, 2**63, 2.5, [256]])
def test_a_picture_becomes_as_many_tokens_as_there_can_be(tokens: Any) -> None:
    config = next(each for each in SMALL if each["architectures"] == ["Gemma3ForConditionalGeneration"])
    assert [each.tokens for each in describe({**config, "mm_tokens_per_image": 64}).encoders] == [64]
    assert [each.tokens for each in describe({**config, "mm_tokens_per_image": tokens}).encoders] == [256]


@pytest.mark.parametrize("channels", [[128, "b"], [128, -1], [128], [True, True], "128", None])
def test_channels_that_are_none_are_those_of_the_family(channels: Any) -> None:
    config = next(each for each in SMALL if "audio_config" in each and "Gemma4" in each["architectures"][0])
    odd = {**config, "audio_config": {**config["audio_config"], "subsampling_conv_channels": channels}}
    assert describe(odd).weights == describe(config).weights


def test_more_layers_that_share_keys_than_there_are_leave_none_that_keep_any() -> None:
    config = copy.deepcopy(next(each for each in SMALL if each["architectures"] == ["Gemma4ForConditionalGeneration"]))
    config["text_config"]["num_kv_shared_layers"] = config["text_config"]["num_hidden_layers"] + 1
    assert describe(config).caches == ()


def test_a_size_of_more_than_64_bits_is_named() -> None:
    config = {**by_name("Qwen/Qwen3-8B"), "hidden_size": 10**400}
    assert describe(config).estimated == "config.json has more than 64 bits for `hidden_size`"


def test_a_chunk_of_no_tokens_is_none() -> None:
    config = next(each for each in SMALL if each["architectures"] == ["BambaForCausalLM"])
    layers = [each for each in describe({**config, "mamba_chunk_size": 0}).caches if isinstance(each, StateLayers)]
    assert layers and {each.chunk for each in layers} == {None}


@pytest.mark.parametrize(("stated", "kept"), [("float32", "float32"), ("torch.bfloat16", "bfloat16"), ("b", None)])
def test_a_type_of_states_that_is_none_is_that_of_the_model(stated: str, kept: str | None) -> None:
    config = copy.deepcopy(next(each for each in SMALL if "Qwen3Next" in each["architectures"][0]))
    found = describe({**config, "mamba_ssm_dtype": stated}).caches
    states = [state for each in found if isinstance(each, StateLayers) for state in each.states]
    assert {state.dtype for state in states if state.name == "recurrent"} == {kept}
