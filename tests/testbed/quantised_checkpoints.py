"""Tiny checkpoints with NVFP4 and FP8 weights, each with a twin whose float32 weights are the values of its codes.

The quantised tensors are made here from the formats' definitions (OCP 8-bit floating point 1.0, OCP microscaling
formats 1.0) and the conventions of compressed-tensors, ModelOpt and DeepSeek; nothing here looks at vllm_volta.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from onecat.checkpoints import TinyShape, write_tiny_checkpoint
from tests.safetensors_files import write_safetensors

# Each fused layer's matrices but the last must fill whole blocks of 128 rows.
SHAPE = TinyShape(layers=2, key_value_heads=4)
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], numpy.float32)
E2M1_MAX, E4M3_MAX = 6.0, 448.0
IGNORED = ("lm_head",)

Array = NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """A tensor as safetensors stores it. dtype: in its words, `F8_E4M3`."""

    dtype: str
    data: Array


@dataclass(frozen=True)
class Quantised:
    """The tensors that take the place of one weight, by their suffix, and the float32 values that they mean."""

    tensors: dict[str, Tensor]
    values: Array


def e4m3_table() -> Array:
    """The values of the 256 E4M3 codes in float32."""
    codes = numpy.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    magnitude = numpy.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    magnitude[codes & 127 == 127] = numpy.nan
    return numpy.where(codes >= 128, -magnitude, magnitude).astype(numpy.float32)


def to_e4m3(values: Array) -> Array:
    """The codes of the nearest E4M3 values (uint8); what is larger than 448 becomes 448."""
    positive = e4m3_table()[:127]
    middles = (positive[1:] + positive[:-1]) / 2
    codes = numpy.searchsorted(middles, numpy.abs(values)).astype(numpy.uint8)
    return numpy.where(numpy.signbit(values), codes | 128, codes).astype(numpy.uint8)


def nvfp4(weight: Array, names: tuple[str, str, str], reciprocal: bool) -> Quantised:
    """NVFP4: 4-bit codes, a scale of E4M3 for 16 columns and one of float32 for all.

    names: of codes, block scales and global scale. reciprocal: whether the checkpoint stores the latter's reciprocal.
    """
    rows, columns = weight.shape
    multiplier = numpy.float32(numpy.abs(weight).max() / (E2M1_MAX * E4M3_MAX))
    stored = numpy.float32(1) / multiplier if reciprocal else multiplier
    blocks = weight.reshape(rows, columns // 16, 16)
    scale_codes = to_e4m3(numpy.abs(blocks).max(axis=2) / (E2M1_MAX * multiplier))
    factor = e4m3_table()[scale_codes] * (numpy.float32(1) / stored if reciprocal else multiplier)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        wanted = numpy.nan_to_num(blocks / factor[..., None])
    codes = numpy.abs(numpy.abs(wanted)[..., None] - E2M1).argmin(axis=3)
    values = numpy.where(numpy.signbit(wanted), -E2M1[codes], E2M1[codes]) * factor[..., None]
    codes = (codes + 8 * numpy.signbit(wanted)).reshape(rows, columns).astype(numpy.uint8)
    tensors = {
        names[0]: Tensor("U8", codes[:, 0::2] | codes[:, 1::2] << 4),
        names[1]: Tensor("F8_E4M3", scale_codes),
        names[2]: Tensor("F32", numpy.array([stored], numpy.float32)),
    }
    return Quantised(tensors, values.reshape(rows, columns).astype(numpy.float32))


def fp8_block(weight: Array, scale_name: str) -> Quantised:
    """E4M3 codes with a float32 scale for each block of 128 x 128."""
    rows, columns = weight.shape
    padded = numpy.pad(weight, ((0, -rows % 128), (0, -columns % 128)))
    blocks = numpy.abs(padded).reshape(padded.shape[0] // 128, 128, padded.shape[1] // 128, 128).max(axis=(1, 3))
    scale = (blocks / E4M3_MAX).astype(numpy.float32)
    spread = scale.repeat(128, axis=0).repeat(128, axis=1)[:rows, :columns]
    codes = to_e4m3(weight / spread)
    tensors = {"weight": Tensor("F8_E4M3", codes), scale_name: Tensor("F32", scale)}
    return Quantised(tensors, (e4m3_table()[codes] * spread).astype(numpy.float32))


def compressed_tensors(weights: dict[str, Any], form: str, activations: dict[str, Any] | None = None) -> dict[str, Any]:
    """`quantization_config` of a checkpoint that compressed-tensors wrote."""
    group = {"targets": ["Linear"], "weights": {**weights, "symmetric": True}, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": list(IGNORED),
    }


NVFP4_WEIGHTS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": False}
FP8_WEIGHTS = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128], "dynamic": False}
FP8_ACTIVATIONS = {
    **{"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "symmetric": True, "dynamic": True}
}
NVFP4_NAMES = ("weight_packed", "weight_scale", "weight_global_scale")
MODELOPT_NAMES = ("weight", "weight_scale", "weight_scale_2")


@dataclass(frozen=True)
class Form:
    """A form of checkpoint. configuration: `quantization_config` in config.json. files: further JSON documents."""

    quantise: Callable[[Array], Quantised]
    configuration: dict[str, Any] | None
    files: dict[str, Any]


FORMS = {
    "nvfp4": Form(
        lambda weight: nvfp4(weight, NVFP4_NAMES, reciprocal=True),
        compressed_tensors(NVFP4_WEIGHTS, "nvfp4-pack-quantized"),
        {},
    ),
    # What guides for Volta show: the method's name and sizes, in config.json or in a file beside it.
    "quasar": Form(
        lambda weight: nvfp4(weight, NVFP4_NAMES, reciprocal=True),
        {"quant_method": "quasar_nvfp4", "block_size": 16, "scale_bits": 8},
        {},
    ),
    "quasar-file": Form(
        lambda weight: nvfp4(weight, NVFP4_NAMES, reciprocal=True),
        None,
        {"quant_config.json": {"quant_method": "quasar_nvfp4", "block_size": 16, "scale_bits": 8}},
    ),
    "modelopt": Form(
        lambda weight: nvfp4(weight, MODELOPT_NAMES, reciprocal=False),
        {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "group_size": 16, "ignore": list(IGNORED)},
        {},
    ),
    "fp8-block": Form(
        lambda weight: fp8_block(weight, "weight_scale"),
        compressed_tensors(FP8_WEIGHTS, "float-quantized", FP8_ACTIVATIONS),
        {},
    ),
    "deepseek": Form(
        lambda weight: fp8_block(weight, "weight_scale_inv"),
        {
            **{"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
            "modules_to_not_convert": list(IGNORED),
        },
        {},
    ),
}


def write(directory: Path, form: str, seed: int = 1) -> Path:
    """Write `directory`/FORM and its twin `directory`/FORM-twin; returns the first."""
    source = write_tiny_checkpoint(directory / f"{form}-twin", SHAPE, seed)
    described = FORMS[form]
    quantised, twin = {}, {}
    for name, weight in _read(source / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if stem.endswith("_proj"):
            made = described.quantise(weight)
            quantised |= {f"{stem}.{suffix}": tensor for suffix, tensor in made.tensors.items()}
            twin[name] = Tensor("F32", made.values)
        else:
            quantised[name] = twin[name] = Tensor("F32", weight)
    target = directory / form
    target.mkdir()
    for path in source.glob("*.json"):
        (target / path.name).write_bytes(path.read_bytes())
    configuration = json.loads((source / "config.json").read_text())
    if described.configuration is not None:
        configuration["quantization_config"] = described.configuration
    for name, document in {"config.json": configuration, **described.files}.items():
        (target / name).write_text(json.dumps(document))
    _write(target / "model.safetensors", quantised)
    _write(source / "model.safetensors", twin)
    return target


def _read(path: Path) -> dict[str, Array]:
    from safetensors.numpy import load_file

    return dict(load_file(path))


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    stored = {name: (each.dtype, each.data.shape, each.data.tobytes()) for name, each in tensors.items()}
    write_safetensors(path, stored, {"format": "pt"})
