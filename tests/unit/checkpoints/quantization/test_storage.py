"""The tensors on disk that a weight becomes, as the tools' own libraries write them."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.checkpoints.architectures import Weight
from onecat.checkpoints.quantization import read_quantization
from onecat.checkpoints.quantization.storage import stored_tensors
from tests.unit.checkpoints.quantization.claims import CLAIMS, INT4, compressed

OUT, INTO = 512, 1024
STEM = "model.layers.0.mlp.down_proj"
EXPERTS = "model.layers.0.mlp.experts.{}".format


def tensors(claim: dict[str, Any], weight: Weight | None = None) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Types and shapes by what follows the module's name."""
    found = read_quantization({"config.json": {"quantization_config": claim}})
    assert found is not None
    weight = weight or Weight(f"{STEM}.weight", (OUT, INTO))
    rows = stored_tensors(weight, found.scheme_for(weight), found.container, "bfloat16")
    stem = weight.name.removesuffix(".weight")
    return {row.name.removeprefix(stem): (row.dtype, row.shape) for row in rows}


EXPECTED: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "ct-nvfp4": {
        ".weight_packed": ("U8", (512, 512)),
        ".weight_scale": ("F8_E4M3", (512, 64)),
        ".weight_global_scale": ("F32", (1,)),
        ".input_global_scale": ("F32", (1,)),
    },
    "ct-nvfp4-a16": {
        ".weight_packed": ("U8", (512, 512)),
        ".weight_scale": ("F8_E4M3", (512, 64)),
        ".weight_global_scale": ("F32", (1,)),
    },
    "ct-mxfp4": {".weight_packed": ("U8", (512, 512)), ".weight_scale": ("U8", (512, 32))},
    "ct-fp8-tensor": {
        ".weight": ("F8_E4M3", (512, 1024)),
        ".weight_scale": ("BF16", (1,)),
        ".input_scale": ("BF16", (1,)),
    },
    "ct-fp8-channel": {".weight": ("F8_E4M3", (512, 1024)), ".weight_scale": ("BF16", (512, 1))},
    "ct-fp8-block": {".weight": ("F8_E4M3", (512, 1024)), ".weight_scale": ("BF16", (4, 8))},
    "ct-int4": {
        ".weight_packed": ("I32", (512, 128)),
        ".weight_shape": ("I64", (2,)),
        ".weight_scale": ("BF16", (512, 8)),
    },
    "ct-int4-asymmetric": {
        ".weight_packed": ("I32", (512, 128)),
        ".weight_shape": ("I64", (2,)),
        ".weight_scale": ("BF16", (512, 8)),
        ".weight_zero_point": ("I32", (64, 8)),
    },
    "ct-int4-ordered": {
        ".weight_packed": ("I32", (512, 128)),
        ".weight_shape": ("I64", (2,)),
        ".weight_scale": ("BF16", (512, 8)),
        ".weight_g_idx": ("I32", (1024,)),
    },
    "ct-int8-channel": {
        ".weight_packed": ("I32", (512, 256)),
        ".weight_shape": ("I64", (2,)),
        ".weight_scale": ("BF16", (512, 1)),
    },
    "ct-w8a8": {".weight": ("I8", (512, 1024)), ".weight_scale": ("BF16", (512, 1))},
    "modelopt-nvfp4": {
        ".weight": ("U8", (512, 512)),
        ".weight_scale": ("F8_E4M3", (512, 64)),
        ".weight_scale_2": ("F32", ()),
        ".input_scale": ("F32", ()),
    },
    "modelopt-fp8": {
        ".weight": ("F8_E4M3", (512, 1024)),
        ".weight_scale": ("F32", ()),
        ".input_scale": ("F32", ()),
    },
    "modelopt-channel": {".weight": ("F8_E4M3", (512, 1024)), ".weight_scale": ("F32", (512,))},
    "modelopt-block": {".weight": ("F8_E4M3", (512, 1024)), ".weight_scale": ("F32", (4, 1, 8, 1))},
    "modelopt-mxfp8": {".weight": ("F8_E4M3", (512, 1024)), ".weight_scale": ("U8", (512, 32))},
    "fp8-block": {".weight": ("F8_E4M3", (512, 1024)), ".weight_scale_inv": ("F32", (4, 8))},
    "fp8-static": {
        ".weight": ("F8_E4M3", (512, 1024)),
        ".weight_scale": ("F32", ()),
        ".input_scale": ("F32", ()),
    },
    "fp8-dynamic": {".weight": ("F8_E4M3", (512, 1024)), ".weight_scale": ("F32", ())},
    "awq": {
        ".qweight": ("I32", (1024, 64)),
        ".qzeros": ("I32", (8, 64)),
        ".scales": ("F16", (8, 512)),
    },
    "gptq": {
        ".qweight": ("I32", (128, 512)),
        ".qzeros": ("I32", (8, 64)),
        ".scales": ("F16", (8, 512)),
        ".g_idx": ("I32", (1024,)),
    },
    "gptq-one-group": {
        ".qweight": ("I32", (256, 512)),
        ".qzeros": ("I32", (1, 128)),
        ".scales": ("F16", (1, 512)),
        ".g_idx": ("I32", (1024,)),
    },
    "bnb-int8": {
        ".weight": ("I8", (512, 1024)),
        ".SCB": ("F32", (512,)),
        ".weight_format": ("U8", ()),
    },
    "quark-mxfp4": {".weight": ("U8", (512, 512)), ".weight_scale": ("U8", (512, 32))},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_weight_becomes(name: str) -> None:
    assert tensors(CLAIMS[name]) == EXPECTED[name]


def test_nf4_is_flat_with_scales_of_scales() -> None:
    found = tensors(CLAIMS["bnb-nf4"])
    assert found[".weight"] == ("U8", (512 * 1024 // 2, 1))
    assert found[".weight.absmax"] == ("U8", (512 * 1024 // 64,))
    assert found[".weight.nested_absmax"] == ("F32", (32,))


def test_2_of_4_sparse_weights_keep_half_of_the_columns() -> None:
    found = tensors(compressed("marlin-24", INT4))
    assert found[".weight_packed"] == ("I32", (1024 // 32, 512 * 16 // 8))
    assert found[".meta"] == ("I16", (1024 // 32, 512 * 2))
    assert found[".scale_packed"] == ("F16", (8, 512))


def test_what_no_rule_touches_is_one_tensor_in_the_models_type() -> None:
    norm = Weight("model.norm.weight", (1024,), "norm")
    assert tensors(CLAIMS["awq"], norm) == {".weight": ("BF16", (1024,))}
    (row,) = stored_tensors(norm, None, None, "float16")
    assert (row.name, row.dtype, row.bytes) == ("model.norm.weight", "F16", 2048)


def test_experts_are_one_row_for_each_tensor() -> None:
    found = read_quantization({"config.json": {"quantization_config": CLAIMS["fp8-block"]}})
    assert found is not None
    weight = Weight(EXPERTS("*.up_proj.weight"), (300, 200), layer=0, count=64)
    codes, scales = stored_tensors(weight, found.scheme_for(weight), found.container, "bfloat16")
    assert (codes.name, codes.count, codes.bytes) == (EXPERTS("*.up_proj.weight"), 64, 64 * 300 * 200)
    assert (scales.name, scales.shape, scales.bytes) == (EXPERTS("*.up_proj.weight_scale_inv"), (3, 2), 64 * 6 * 4)


def test_experts_of_gpt_oss_are_blocks_of_16_bytes() -> None:
    weight = Weight(EXPERTS("gate_up_proj"), (5760, 2880), layer=0, count=128)
    assert tensors({"quant_method": "mxfp4"}, weight) == {
        "_blocks": ("U8", (128, 5760, 90, 16)),
        "_scales": ("U8", (128, 5760, 90)),
    }
