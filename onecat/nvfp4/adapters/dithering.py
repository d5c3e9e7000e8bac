"""Rounding up or down at random, so that small updates survive on average.

Weights that were decoded from NVFP4 or FP8 stand on the grid of their codes; rounded to the nearest, they stay there
under any update below half a step, and most updates of fine-tuning are. Rounded up with the probability of how far a
weight is on its way to the next value, what is stored is right on average: the noise is larger, and the update is kept.
The same module of the same shape gets the same random numbers in each run.

Measured on the small model with an adapter that PEFT trained for some steps on another kind of text (its update is
0.76 % of the weights), by the perplexity on that text: 9903 before, 5574 merged in float16, 5437 merged and then
converted to NVFP4; repacked from NVFP4 5735 dithered, 10103 to the nearest, as its base has: all is lost.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy

from onecat.nvfp4.codec import BLOCK, E2M1_MAX, E4M3_MAX, Nvfp4, ScaledCodes
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array

Rounding = Literal["nearest", "dithered"]

_CODES = numpy.zeros(13, numpy.uint8)
_CODES[[0, 1, 2, 3, 4, 6, 8, 12]] = range(8)
"""E2M1 codes by twice the magnitude."""


def dithered_nvfp4(made: Nvfp4, rows: Array, multiplier: float, module: str, start: int) -> Nvfp4:
    """Codes rounded at random under the block scales of `made`. rows: float32; start: of the first in the module."""
    scale = made.block_scale.astype(numpy.float32) * numpy.float32(multiplier)
    wanted = rows / scale.repeat(BLOCK, axis=1)
    magnitude = _rounded(numpy.abs(wanted), _random(module, start, rows.shape), 1, 0, E2M1_MAX)
    codes = _CODES[(magnitude * 2).astype(numpy.uint8)]
    codes |= numpy.where(numpy.signbit(wanted) & (codes > 0), numpy.uint8(8), numpy.uint8(0))
    return Nvfp4(codes[:, 0::2] | codes[:, 1::2] << 4, made.block_scale)


def dithered_fp8(made: ScaledCodes, rows: Array, block: tuple[int, int], module: str, start: int) -> ScaledCodes:
    """The same for E4M3 codes under the scales of `made`."""
    spread = made.scale.astype(numpy.float32).repeat(block[0], axis=0).repeat(block[1], axis=1)
    wanted = rows / spread[: rows.shape[0], : rows.shape[1]]
    magnitude = _rounded(numpy.abs(wanted), _random(module, start, rows.shape), 3, -6, E4M3_MAX)
    return ScaledCodes(numpy.copysign(magnitude, wanted).astype(NUMPY_TYPES["F8_E4M3"]), made.scale)


def _rounded(magnitude: Array, random: Array, mantissa: int, lowest: int, largest: float) -> Array:
    """Values of a float format with so many mantissa bits, normal from 2**lowest on; above `largest` that."""
    exponent = numpy.frexp(magnitude)[1] - 1
    step = numpy.ldexp(numpy.float32(1), numpy.maximum(exponent, lowest) - mantissa)
    rounded: Array = numpy.minimum(numpy.floor(magnitude / step + random) * step, numpy.float32(largest))
    return rounded


def _random(module: str, start: int, shape: tuple[int, ...]) -> Array:
    key = int.from_bytes(hashlib.sha256(f"{module} {start}".encode()).digest()[:16], "little")
    return numpy.random.Generator(numpy.random.Philox(key=key)).random(shape, dtype=numpy.float32)
