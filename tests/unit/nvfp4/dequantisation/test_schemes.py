"""Each way in which weights are stored, against its formula in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest

from tests.unit.nvfp4.dequantisation.checkpoints import (
    E4M3,
    PROJECTION,
    Array,
    assert_close,
    block_scales,
    checkpoint,
    dequantised,
    e4m3,
    nvfp4_meaning,
    packed,
    scales,
    spread,
)

FP8 = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
BLOCKS = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
MODELOPT = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}}
FBGEMM = {"quantization_config": {"quant_method": "fbgemm_fp8"}}


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"type": "float", **weights}}
    return {
        "quantization_config": {"quant_method": "compressed-tensors", "format": form, "config_groups": {"g": group}}
    }


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_scale_for_a_tensor(shape: tuple[int, ...], tmp_path: Path) -> None:
    codes, scale = e4m3(48, 80), scales(*shape)
    stored = {"weight": codes, "weight_scale": scale, "input_scale": scales(*shape)}
    plan, made = dequantised(checkpoint(tmp_path / "c", named(stored), FP8))
    assert plan.modules == {"fp8-tensor": 1} and list(made) == [f"{PROJECTION}.weight"]
    assert_close(made[f"{PROJECTION}.weight"], codes.astype(numpy.float64) * scale.reshape(-1)[0].astype(numpy.float64))
    assert plan.dropped == (f"{PROJECTION}.input_scale",)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(48,), (48, 1)])
def test_a_scale_for_each_row(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    scale = scales(*shape, dtype=numpy.dtype(getattr(ml_dtypes, dtype, dtype)))
    codes = e4m3(48, 80)
    stored = {"weight": codes, "weight_scale": scale, "input_scale_ub": scales(1)}
    plan, made = dequantised(checkpoint(tmp_path / "c", named(stored), FBGEMM))
    assert plan.modules == {"fp8-channel": 1}
    assert_close(made[f"{PROJECTION}.weight"], codes.astype(numpy.float64) * scale.astype(numpy.float64).reshape(48, 1))


@pytest.mark.parametrize("part", ["weight_scale_inv", "weight_scale", "scale"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e8m0fnu"])
def test_blocks_by_the_formula_of_deepseek(part: str, dtype: str, tmp_path: Path) -> None:
    codes, scale = e4m3(300, 200), scales(3, 2, dtype=numpy.dtype(getattr(ml_dtypes, dtype, dtype)))
    plan, made = dequantised(checkpoint(tmp_path / "c", named({"weight": codes, part: scale}), BLOCKS))
    assert plan.modules == {"fp8-block": 1}
    assert_close(made[f"{PROJECTION}.weight"], codes.astype(numpy.float64) * spread(scale, (128, 128), (300, 200)))


def test_blocks_of_another_size_and_in_four_axes(tmp_path: Path) -> None:
    codes, scale = e4m3(96, 64), scales(3, 4)
    for name, config, stored in (
        ("stated", compressed("float-quantized", num_bits=8, strategy="block", block_structure=[32, 16]), scale),
        ("wide", {"quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 16]}},
         scale.reshape(3, 1, 4, 1)),
    ):  # fmt: skip
        _, made = dequantised(checkpoint(tmp_path / name, named({"weight": codes, "weight_scale": stored}), config))
        assert_close(made[f"{PROJECTION}.weight"], codes.astype(numpy.float64) * spread(scale, (32, 16), (96, 64)))


def test_groups_of_columns(tmp_path: Path) -> None:
    codes, scale = e4m3(48, 64), scales(48, 2)
    config = compressed("float-quantized", num_bits=8, strategy="group", group_size=32)
    plan, made = dequantised(checkpoint(tmp_path / "c", named({"weight": codes, "weight_scale": scale}), config))
    assert plan.modules == {"fp8-group": 1}
    assert_close(made[f"{PROJECTION}.weight"], codes.astype(numpy.float64) * spread(scale, (1, 32), (48, 64)))


def test_nvfp4_of_both_conventions_and_fp8_in_one_checkpoint(tmp_path: Path) -> None:
    codes, block_scale = packed(32, 40), block_scales(32, 5)
    fp8, scale = e4m3(16, 16), scales()
    plain = numpy.ones(32, ml_dtypes.bfloat16)
    tensors = {
        "model.layers.0.self_attn.q_proj.weight": codes,
        "model.layers.0.self_attn.q_proj.weight_scale": block_scale,
        "model.layers.0.self_attn.q_proj.weight_scale_2": numpy.array(0.003, numpy.float32),
        "model.layers.0.self_attn.q_proj.input_scale": scales(),
        "model.layers.0.self_attn.k_proj.weight_packed": codes,
        "model.layers.0.self_attn.k_proj.weight_scale": block_scale,
        "model.layers.0.self_attn.k_proj.weight_global_scale": numpy.array([300], numpy.float32),
        "model.layers.0.self_attn.k_proj.input_global_scale": scales(1),
        "model.layers.0.self_attn.k_proj.k_scale": scales(),
        "model.layers.0.self_attn.v_proj.weight": fp8,
        "model.layers.0.self_attn.v_proj.weight_scale": scale,
        "model.layers.0.self_attn.v_proj.bias": plain,
        "model.layers.0.self_attn.v_scale": scales(1),
        "model.norm.weight": plain,
        "model.positions": numpy.arange(3),
    }
    plan, made = dequantised(checkpoint(tmp_path / "c", tensors, MODELOPT))
    assert plan.modules == {"nvfp4": 2, "fp8-tensor": 1} and plan.kept == 3 and len(plan.dropped) == 4
    exact = nvfp4_meaning(codes, block_scale)
    assert_close(made["model.layers.0.self_attn.q_proj.weight"], exact * numpy.float64(numpy.float32(0.003)))
    assert_close(made["model.layers.0.self_attn.k_proj.weight"], exact / 300)
    assert set(made) == {
        *(f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkv"),
        *("model.layers.0.self_attn.v_proj.bias", "model.norm.weight", "model.positions"),
    }
    assert made["model.positions"].dtype == numpy.int64


def test_a_factor_of_the_input_becomes_part_of_the_weight(tmp_path: Path) -> None:
    codes, block_scale, factor = packed(8, 16), block_scales(8, 2), scales(32, dtype=ml_dtypes.bfloat16)
    stored = {"weight": codes, "weight_scale": block_scale, "weight_scale_2": scales(), "pre_quant_scale": factor}
    _, made = dequantised(checkpoint(tmp_path / "c", named(stored), MODELOPT))
    exact = nvfp4_meaning(codes, block_scale) * stored["weight_scale_2"].astype(numpy.float64)
    assert_close(made[f"{PROJECTION}.weight"], exact * factor.astype(numpy.float64))


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_experts_in_one_tensor_of_nvfp4(is_transposed: bool, shared: bool, tmp_path: Path) -> None:
    codes, block_scale = packed(3, 32, 24), block_scales(3, 32, 3)
    second = scales() if shared else scales(3)
    exact = nvfp4_meaning(codes, block_scale) * second.astype(numpy.float64).reshape(-1, 1, 1)
    turn = (lambda each: numpy.ascontiguousarray(each.transpose(0, 2, 1))) if is_transposed else (lambda each: each)
    joint = "model.layers.0.mlp.experts.gate_up_proj"
    tensors = {
        joint: turn(codes), f"{joint}_weight_scale": turn(block_scale), f"{joint}_weight_scale_2": second,
        f"{joint}_input_scale": scales(3),
    }  # fmt: skip
    plan, made = dequantised(checkpoint(tmp_path / "c", tensors, MODELOPT))
    assert list(made) == [joint] and plan.modules == {"nvfp4": 1}
    assert_close(made[joint], turn(exact))


@pytest.mark.parametrize("shape", [(), (3,), (3, 1, 1), (3, 32), (3, 32, 1), (3, 1, 24)])
def test_experts_in_one_tensor_of_fp8(shape: tuple[int, ...], tmp_path: Path) -> None:
    codes, scale = e4m3(3, 32, 24), scales(*shape)
    joint = "model.layers.0.mlp.experts.gate_up_proj"
    _, made = dequantised(checkpoint(tmp_path / "c", {joint: codes, f"{joint}_scale": scale}, FBGEMM))
    wide = scale.reshape(*shape, *(1,) * (3 - len(shape))) if shape else scale
    assert_close(made[joint], codes.astype(numpy.float64) * wide.astype(numpy.float64))


def test_experts_of_their_own(tmp_path: Path) -> None:
    tensors: dict[str, Array] = {}
    for expert in range(3):
        stem = f"model.layers.0.mlp.experts.{expert}.down_proj"
        tensors |= {f"{stem}.weight": e4m3(130, 16), f"{stem}.weight_scale_inv": scales(2, 1)}
    plan, made = dequantised(checkpoint(tmp_path / "c", tensors, BLOCKS))
    assert plan.modules == {"fp8-block": 3}
    for name, values in made.items():
        codes, scale = tensors[name], tensors[f"{name}_scale_inv"]
        assert_close(values, codes.astype(numpy.float64) * spread(scale, (128, 128), (130, 16)))


def test_every_code_of_e4m3_and_its_rounding(tmp_path: Path) -> None:
    codes = numpy.delete(numpy.arange(256, dtype=numpy.uint8), [127, 255]).view(E4M3).reshape(2, 127)
    scale = numpy.array([[0.3], [1e-4]], numpy.float32)
    place = checkpoint(tmp_path / "c", named({"weight": codes, "weight_scale": scale}), FP8)
    for dtype, rounded in (("float16", numpy.float16), ("bfloat16", ml_dtypes.bfloat16)):
        exact = codes.astype(numpy.float32) * scale
        copy = place.with_name(dtype)
        place = place.rename(copy)
        assert dequantised(place, dtype)[1][f"{PROJECTION}.weight"].tobytes() == exact.astype(rounded).tobytes()


def named(stored: dict[str, Array]) -> dict[str, Array]:
    return {f"{PROJECTION}.{part}": tensor for part, tensor in stored.items()}
