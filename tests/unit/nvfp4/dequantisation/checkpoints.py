"""Small quantised checkpoints made tensor by tensor, and what their codes mean in float64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
from numpy.typing import NDArray

from onecat.nvfp4.codec import choose
from onecat.nvfp4.dequantisation import Dequantisation, Target, open_original, plan_dequantisation
from onecat.nvfp4.rewriting import open_source, rewrite
from tests.unit.checkpoints.checkpoint_files import write_checkpoint

Array = NDArray[Any]
E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
NAMES = {
    "uint8": "U8", "int32": "I32", "int8": "I8", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0", "int64": "I64",
}  # fmt: skip
PROJECTION = "model.layers.0.mlp.down_proj"
RANDOM = numpy.random.default_rng(3)


def checkpoint(directory: Path, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Path:
    """Write a checkpoint with these tensors; it is told to be of bfloat16."""
    stored = {name: (NAMES[each.dtype.name], each.shape, each.tobytes()) for name, each in tensors.items()}
    return write_checkpoint(directory, stored, {"architectures": ["X"], "torch_dtype": "bfloat16", **config})


def dequantised(
    directory: Path, dtype: str | None = "float32", shard_bytes: int = 10**9
) -> tuple[Dequantisation, dict[str, Array]]:
    """The plan, and all tensors of the checkpoint that it makes beside `directory`."""
    original = open_original(directory)
    target = directory.with_name(f"{directory.name}-plain")
    plan = plan_dequantisation(original, Target(target, dtype, shard_bytes), choose(1))
    rewrite(plan.rewrite, original.source)
    made = open_source(target, tuple(shard.file for shard in plan.rewrite.shards))
    return plan, {name: made.read(name) for name in made}


def e4m3(*shape: int, largest: float = 448) -> Array:
    """Random E4M3 codes, without NaN."""
    return RANDOM.uniform(-largest, largest, shape).astype(E4M3)


def scales(*shape: int, dtype: Any = numpy.float32) -> Array:
    return RANDOM.uniform(0.001, 0.02, shape).astype(dtype)


def packed(*shape: int) -> Array:
    return RANDOM.integers(0, 256, shape).astype(numpy.uint8)


def block_scales(*shape: int) -> Array:
    return RANDOM.uniform(0.01, 448, shape).astype(E4M3)


def nvfp4_meaning(codes: Array, block_scale: Array) -> Array:
    """E2M1 value * block scale in float64; codes [..., in / 2], scales [..., in / 16]."""
    values = numpy.stack((E2M1[codes & 15], E2M1[codes >> 4]), axis=-1).reshape(*codes.shape[:-1], -1)
    return values * block_scale.astype(numpy.float64).repeat(16, axis=-1)


def spread(scale: Array, block: tuple[int, int], shape: tuple[int, int]) -> Array:
    """A scale of blocks at every element, in float64."""
    wide = scale.astype(numpy.float64).repeat(block[0], axis=0).repeat(block[1], axis=1)
    return wide[: shape[0], : shape[1]]


def assert_close(made: Array, exact: Array) -> None:
    """Equal but for three roundings in float32, of which DeepSeek's and ModelOpt's formulas have up to two."""
    numpy.testing.assert_allclose(made.astype(numpy.float64), exact, rtol=3 * 2.0**-24, atol=0)
