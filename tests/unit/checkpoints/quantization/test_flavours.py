"""What each way of writing a quantisation configuration means."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.checkpoints.quantization import Quantization, read_quantization
from onecat.checkpoints.quantization.flavours import modelopt
from onecat.checkpoints.quantization.registry import layouts, readers
from tests.unit.checkpoints.quantization.claims import CLAIMS, FP8, INT4, NVFP4, compressed

LAYER = "model.layers.0.mlp.down_proj"


def read(stated: dict[str, Any], **beside: dict[str, Any]) -> Quantization:
    found = read_quantization({"config.json": {"quantization_config": stated}, **beside})
    assert found is not None
    return found


EXPECTED: dict[str, tuple[str, str, str, int | None, str | None]] = {
    "ct-nvfp4": ("nvfp4", "compressed-tensors", "compressed-tensors", 16, "nvfp4"),
    "ct-nvfp4-a16": ("nvfp4", "compressed-tensors", "compressed-tensors", 16, None),
    "ct-mxfp4": ("mxfp4", "compressed-tensors", "compressed-tensors", 32, None),
    "ct-fp8-tensor": ("fp8-tensor", "compressed-tensors", "compressed-tensors", None, "fp8"),
    "ct-fp8-channel": ("fp8-channel", "compressed-tensors", "compressed-tensors", None, "fp8"),
    "ct-fp8-block": ("fp8-block", "compressed-tensors", "compressed-tensors", 128, "fp8"),
    "ct-int4": ("int4", "compressed-tensors", "compressed-tensors", 128, None),
    "ct-int4-asymmetric": ("int4", "compressed-tensors", "compressed-tensors", 128, None),
    "ct-int4-ordered": ("int4", "compressed-tensors", "compressed-tensors", 128, None),
    "ct-int8-channel": ("int8", "compressed-tensors", "compressed-tensors", None, None),
    "ct-w8a8": ("int8", "compressed-tensors", "compressed-tensors", None, "int8"),
    "modelopt-nvfp4": ("nvfp4", "modelopt", "modelopt_fp4", 16, "nvfp4"),
    "modelopt-awq": ("nvfp4", "modelopt", "modelopt_fp4", 16, "nvfp4"),
    "modelopt-w4a8": ("nvfp4", "modelopt", "modelopt_fp4", 16, "fp8"),
    "modelopt-fp8": ("fp8-tensor", "modelopt", "modelopt", None, "fp8"),
    "modelopt-channel": ("fp8-channel", "modelopt", "modelopt", None, "fp8"),
    "modelopt-block": ("fp8-block", "modelopt", "modelopt", 128, None),
    "modelopt-mxfp8": ("mxfp8", "modelopt", "modelopt_mxfp8", 32, "mxfp8"),
    "fp8-block": ("fp8-block", "fp8", "fp8", 128, "fp8"),
    "fp8-static": ("fp8-tensor", "fp8", "fp8", None, "fp8"),
    "fp8-dynamic": ("fp8-tensor", "fp8", "fp8", None, "fp8"),
    "fbgemm": ("fp8-channel", "fbgemm_fp8", "fbgemm_fp8", None, "fp8"),
    "awq": ("int4", "awq", "awq", 128, None),
    "gptq": ("int4", "gptq", "gptq", 128, None),
    "gptq-one-group": ("int8", "gptq", "gptq", None, None),
    "bnb-nf4": ("nf4", "bitsandbytes", "bitsandbytes", 64, None),
    "bnb-int8": ("int8", "bitsandbytes", "bitsandbytes", None, None),
    "auto-round": ("int4", "auto-round", "inc", 128, None),
    "auto-round-awq": ("int4", "auto-round", "inc", 128, None),
    "quark-fp8": ("fp8-tensor", "quark", "quark", None, "fp8"),
    "quark-mxfp4": ("mxfp4", "quark", "quark", 32, "mxfp4"),
    "torchao": ("int4", "torchao", "torchao", 128, None),
    "quasar": ("nvfp4", "quasar_nvfp4", "quasar_nvfp4", 16, None),
}


def test_every_claim_has_a_meaning() -> None:
    assert set(EXPECTED) == set(CLAIMS)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_claim_means(name: str) -> None:
    found = read(CLAIMS[name])
    scheme = found.scheme_of(LAYER)
    assert scheme is not None
    told = (found.scheme, found.container, found.method, found.group_size, scheme.activations)
    assert told == EXPECTED[name]
    assert found.scheme_of("lm_head", "head") is None
    assert found.scheme_of("model.embed_tokens", "embedding") is None


def test_every_container_has_a_layout() -> None:
    assert {read(claim).container for claim in CLAIMS.values()} <= set(layouts())


@pytest.mark.parametrize("method", ["hqq", "aqlm", "exl3", "gguf", "eetq", "bitnet", "vptq"])
def test_methods_of_their_own_are_known_by_name(method: str) -> None:
    found = read({"quant_method": method, "bits": 3})
    assert (found.scheme, found.method) == (method, method)
    scheme = found.scheme_of(LAYER)
    assert scheme is not None and scheme.bits == 3


def test_a_method_that_nobody_knows_is_unknown_and_keeps_its_name() -> None:
    found = read({"quant_method": "zip4u"})
    assert (found.scheme, found.method, found.rules) == ("unknown", "zip4u", ())
    assert "zip4u" not in readers()


def test_an_algorithm_of_modelopt_that_nobody_knows_is_unknown() -> None:
    assert read({"quant_method": "modelopt", "quant_algo": "W1A1_MAGIC"}).scheme == "unknown"


@pytest.mark.parametrize("algorithm", sorted(modelopt.ALGORITHMS))
def test_every_algorithm_of_modelopt_is_read_in_both_files(algorithm: str) -> None:
    new = read({"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"]})
    old = read_quantization(
        {"hf_quant_config.json": {"quantization": {"quant_algo": algorithm, "exclude_modules": ["lm_head"]}}}
    )
    assert old == new and new.scheme != "unknown"


def test_compressed_tensors_takes_names_before_classes_and_ignores_before_both() -> None:
    found = read(
        {
            "quant_method": "compressed-tensors",
            "format": "mixed-precision",
            "ignore": ["lm_head", "re:.*mlp.gate$"],
            "config_groups": {
                "group_0": {"targets": ["Linear"], "format": "nvfp4-pack-quantized", "weights": NVFP4},
                "group_1": {
                    "targets": ["re:.*self_attn.*"], "format": "float-quantized",
                    "weights": {**FP8, "strategy": "channel"},
                },
                "group_2": {"targets": ["model.layers.1.mlp.up_proj"], "format": "pack-quantized", "weights": INT4},
            },
        }
    )  # fmt: skip
    names = {
        "model.layers.0.self_attn.q_proj": "fp8-channel",
        "model.layers.1.mlp.up_proj": "int4",
        "model.layers.2.mlp.up_proj": "nvfp4",
    }
    assert {each: getattr(found.scheme_of(each), "name", None) for each in names} == names
    assert found.scheme_of("model.layers.0.mlp.gate") is None
    assert (found.scheme, found.format, found.group_size) == ("mixed", "mixed-precision", None)


def test_a_group_for_attention_alone_quantises_no_weight() -> None:
    found = read(
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"targets": ["LlamaAttention"], "weights": None, "input_activations": FP8}},
            "kv_cache_scheme": {"type": "float", "num_bits": 8},
        }
    )
    assert (found.scheme, found.kv_cache, found.scheme_of(LAYER)) == ("none", "fp8", None)


def test_an_output_head_that_is_not_ignored_is_quantised() -> None:
    found = read(compressed("pack-quantized", INT4, ignore=()))
    assert found.scheme_of("lm_head", "head") is not None


def test_dynamic_rules_of_gptq_skip_and_override() -> None:
    found = read(
        {
            **CLAIMS["gptq"],
            "dynamic": {r"-:.*\.0\..*": {}, r"+:.*\.1\..*down_proj": {"bits": 8, "group_size": 64}},
            "lm_head": True,
        }
    )
    assert found.scheme_of("model.layers.0.mlp.down_proj") is None
    assert getattr(found.scheme_of("model.layers.1.mlp.down_proj"), "group_size", 0) == 64
    assert getattr(found.scheme_of("model.layers.1.mlp.up_proj"), "bits", 0) == 4
    assert found.scheme_of("lm_head", "head") is not None


def test_bits_of_auto_round_may_differ_by_layer_and_block() -> None:
    found = read(
        {
            **CLAIMS["auto-round"],
            "block_name_to_quantize": ["model.layers"],
            "extra_config": {
                "model.layers.0.mlp.up_proj": {"bits": 16},
                r".*\.1\.mlp\.down_proj": {"bits": 8, "group_size": 32},
                "lm_head": {"bits": 4},
            },
        }
    )
    assert found.scheme_of("model.layers.0.mlp.up_proj") is None
    assert getattr(found.scheme_of("model.layers.1.mlp.down_proj"), "bits", 0) == 8
    assert getattr(found.scheme_of("model.layers.2.mlp.down_proj"), "bits", 0) == 4
    assert found.scheme_of("visual.blocks.0.mlp.fc1", part="vision") is None
    assert found.scheme_of("lm_head", "head") is not None


def test_layers_of_quark_may_differ_and_a_group_for_the_kv_cache_asks_for_fp8() -> None:
    fp8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}
    found = read(
        {
            **CLAIMS["quark-mxfp4"],
            "layer_quant_config": {"*v_proj": {"weight": fp8, "input_tensors": fp8, "output_tensors": fp8}},
            "export": {"kv_cache_group": ["*v_proj"]},
        }
    )
    assert found.kv_cache == "fp8"
    assert getattr(found.scheme_of("model.layers.0.self_attn.v_proj"), "name", None) == "fp8-tensor"
    assert getattr(found.scheme_of("model.layers.0.self_attn.o_proj"), "name", None) == "mxfp4"


def test_layers_of_a_mixed_checkpoint_may_stand_in_the_file_beside_config_json() -> None:
    layers = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {LAYER: {"quant_algo": "FP8"}}}}
    stated = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    found = read(stated, **{"hf_quant_config.json": layers})
    assert getattr(found.scheme_of(LAYER), "name", None) == "fp8-tensor"
    assert found.scheme_of("model.layers.9.mlp.up_proj") is None


@pytest.mark.parametrize(
    ("stated", "container"),
    [
        ({"quant_algo": "FP8", "producer": {"name": "modelopt"}}, "modelopt"),
        ({"config_groups": {"g": {"targets": ["Linear"], "weights": INT4}}}, "compressed-tensors"),
        ({"activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "fp8"),
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"zero_point": True, "q_group_size": 128, "w_bit": 4}, "awq"),
        ({"bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
    ],
)
def test_a_missing_method_is_told_from_the_other_fields(stated: dict[str, Any], container: str) -> None:
    assert read(stated).container == container


@pytest.mark.parametrize(
    ("name", "stated", "container"),
    [
        ("quant_config.json", {"zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}, "awq"),
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False, "sym": True}, "gptq"),
        ("quantization_config.json", {**CLAIMS["auto-round"]}, "auto-round"),
        ("quant_config.json", {"quant_method": "quasar_nvfp4", "block_size": 16, "scale_bits": 8}, "quasar_nvfp4"),
    ],
)
def test_a_file_beside_config_json_may_make_the_claim(name: str, stated: dict[str, Any], container: str) -> None:
    found = read_quantization({"config.json": {"architectures": ["X"]}, name: stated})
    assert found is not None and found.container == container


@pytest.mark.parametrize("place", ["text_config", "llm_config", "language_config"])
def test_a_claim_may_stand_with_the_language_model(place: str) -> None:
    found = read_quantization({"config.json": {place: {"quantization_config": CLAIMS["awq"]}}})
    assert found is not None and found.container == "awq"


@pytest.mark.parametrize("stated", [None, [], "awq", 4, {}, {"config_groups": 3, "quant_method": 5}, {"ignore": None}])
def test_what_is_no_claim_is_none(stated: object) -> None:
    found = read_quantization({"config.json": {"quantization_config": stated}})  # type: ignore[dict-item]
    assert found is None or found.rules == ()
