"""What is not read, and what is damaged, ends with the reason and nothing that looks finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.dequantisation import open_original
from tests.unit.nvfp4.dequantisation.checkpoints import (
    E4M3,
    PROJECTION,
    Array,
    block_scales,
    checkpoint,
    dequantised,
    e4m3,
    packed,
    scales,
)

AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}}
FP8 = {"quantization_config": {"quant_method": "fp8"}}
MODELOPT = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}}
WORDS = numpy.zeros((4, 4), numpy.int32)
BLOCKS = numpy.zeros((2, 8, 4, 16), numpy.uint8)

NVFP4 = {
    "weight_packed": packed(16, 16), "weight_scale": block_scales(16, 2),
    "weight_global_scale": numpy.array([10], numpy.float32),
}  # fmt: skip


def refused(directory: Path, tensors: dict[str, Array], config: dict[str, Any], dtype: str = "bfloat16") -> OnecatError:
    with pytest.raises(OnecatError) as caught:
        dequantised(checkpoint(directory / "c", tensors, config), dtype)
    assert not (directory / "c-plain" / "config.json").exists()
    return caught.value


def named(**stored: Array) -> dict[str, Array]:
    return {f"{PROJECTION}.{part}": tensor for part, tensor in stored.items()}


def test_other_schemes_are_named_and_counted(tmp_path: Path) -> None:
    tensors: dict[str, Array] = {}
    for layer in range(3):
        stem = f"model.layers.{layer}.mlp.down_proj"
        tensors |= {f"{stem}.qweight": WORDS, f"{stem}.qzeros": WORDS, f"{stem}.scales": scales(4, 4)}
    error = refused(tmp_path, tensors, AWQ)
    assert "int4 of awq (3 modules)" in error.found and error.code == ExitCode.NO
    assert any("qweight I32 [4, 4]" in line for line in error.details)


def test_mxfp4(tmp_path: Path) -> None:
    joint = "model.layers.0.mlp.experts.gate_up_proj"
    tensors = {f"{joint}_blocks": BLOCKS, f"{joint}_scales": BLOCKS[..., 0]}
    error = refused(tmp_path, tensors, {"quantization_config": {"quant_method": "mxfp4"}})
    assert "mxfp4 of mxfp4 (1 module)" in error.found


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ({"weight": e4m3(16, 32)}, "no scale"),
        ({"weight": e4m3(16, 32), "weight_scale": scales(3)}, "do not fit"),
        ({"weight": e4m3(16, 32), "weight_scale": scales(16, 5)}, "do not fit"),
        ({"weight": e4m3(16, 32), "weight_scale": packed(16, 1)}, "type U8"),
        ({"weight": e4m3(16, 32), "weight_scale": scales(1), "weight_scale_inv": scales(1, 1)}, "beside"),
        ({"weight_packed": packed(16, 16), "weight_scale": block_scales(16, 2)}, "weight_packed U8"),
        ({**NVFP4, "weight_scale": block_scales(16, 3)}, "do not fit"),
        ({**NVFP4, "weight_scale": scales(16, 2)}, "F8_E4M3"),
        ({**NVFP4, "weight_global_scale": scales(2)}, "2 numbers"),
        ({**NVFP4, "weight_g_idx": WORDS}, "weight_g_idx"),
        ({"weight": scales(16, 32), "weight_scale": scales(1)}, "weight F32"),
        ({"weight_scale": scales(1)}, "weight_scale F32"),
        ({"weight": packed(16, 16)}, "weight U8"),
        ({**NVFP4, "svdquant_lora_a": scales(4, 32)}, "svdquant_lora_a too"),
        ({**NVFP4, "weight_quantizer.lora_a": scales(4, 32)}, "weight_quantizer.lora_a too"),
        ({"buffer": packed(16, 16)}, "type is U8"),
    ],
)
def test_tensors_that_contradict_each_other(stored: dict[str, Array], why: str, tmp_path: Path) -> None:
    error = refused(tmp_path, named(**stored), MODELOPT)
    assert any(why in line for line in error.details), error.details


@pytest.mark.parametrize("config", [{}, FP8])
def test_a_checkpoint_that_is_plain(config: dict[str, Any], tmp_path: Path) -> None:
    error = refused(tmp_path, named(weight=scales(16, 16, dtype=ml_dtypes.bfloat16)), config)
    assert "not quantised" in error.found and error.code == ExitCode.NO
    assert ("config.json says fp8" in error.found) == bool(config)


def test_values_beyond_float16(tmp_path: Path) -> None:
    codes = numpy.full((8, 16), 1, E4M3)
    codes[2, :3] = 448
    tensors = named(weight=codes, weight_scale=numpy.array([200], numpy.float32))
    error = refused(tmp_path, tensors, FP8, "float16")
    assert "3 of 128 values are beyond 65504" in error.found
    assert any("--dtype bfloat16" in step for step in error.next_steps)
    again = checkpoint(tmp_path / "again", tensors, FP8)
    assert float(dequantised(again, "bfloat16")[1][f"{PROJECTION}.weight"].astype(numpy.float32).max()) == 89600


def test_plain_numbers_beyond_float16(tmp_path: Path) -> None:
    tensors = named(weight=e4m3(8, 16), weight_scale=scales(1))
    tensors["model.norm.weight"] = numpy.array([1, 1e6, numpy.inf], ml_dtypes.bfloat16)
    assert "model.norm: 1 of 3 values" in refused(tmp_path, tensors, FP8, "float16").found


@pytest.mark.parametrize("part", ["weight", "weight_scale"])
def test_codes_that_are_no_numbers(part: str, tmp_path: Path) -> None:
    stored = {"weight": e4m3(8, 16), "weight_scale": scales(8, 1)}
    stored[part][3, 0] = numpy.nan
    error = refused(tmp_path, named(**stored), FP8)
    assert f"1 of {stored[part].size} " in error.found and f"{PROJECTION}.{part}" in error.found


@pytest.mark.parametrize("value", [0, -1, numpy.inf, numpy.nan])
def test_tensor_scales_that_no_tool_writes(value: float, tmp_path: Path) -> None:
    stored = {**NVFP4, "weight_global_scale": numpy.array([value], numpy.float32)}
    assert "weight_global_scale is" in refused(tmp_path, named(**stored), MODELOPT).found


def test_block_scales_that_are_no_numbers(tmp_path: Path) -> None:
    stored = {**NVFP4, "weight_scale": NVFP4["weight_scale"].copy()}
    stored["weight_scale"][1, 1] = numpy.nan
    assert "1 of 32 elements" in refused(tmp_path, named(**stored), MODELOPT).found


def test_a_zero_point_must_be_zero(tmp_path: Path) -> None:
    stored = {"weight": e4m3(8, 16), "weight_scale": scales(8, 1), "weight_zero_point": numpy.zeros((8, 1), E4M3)}
    dequantised(checkpoint(tmp_path / "zero", named(**stored), FP8))
    stored["weight_zero_point"][2] = 1
    assert "weight_zero_point is not 0" in refused(tmp_path, named(**stored), FP8).found


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "c", named(weight=e4m3(8, 16), weight_scale=scales(1)), FP8)
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-3])
    with pytest.raises(OnecatError, match="no whole checkpoint: model.safetensors is cut off"):
        open_original(place)


def test_only_the_copy_of_mistral(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "c", named(weight=e4m3(8, 16), weight_scale=scales(1)), FP8)
    (place / "model.safetensors").rename(place / "consolidated.safetensors")
    with pytest.raises(OnecatError, match="Mistral's own names"):
        open_original(place)
