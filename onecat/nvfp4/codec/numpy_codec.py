"""The codec in numpy and ml_dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy

from onecat.nvfp4.codec.records import BLOCK, E2M1_MAX, E4M3_MAX, Deviation, Nvfp4, ScaledCodes, Search
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array

E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], numpy.float32)
_MIDDLES = (E2M1[1:] + E2M1[:-1]) / 2
_TO_EVEN = numpy.array([True, False, True, False, True, False, True])
"""Whether a value in the middle between code k and k + 1 becomes k: the code with an even mantissa."""


@dataclass(frozen=True)
class NumpyCodec:
    """See `Codec`."""

    threads: int = 1
    name: ClassVar[str] = "numpy"

    def largest(self, weight: Array) -> float:
        return float(numpy.abs(_finite(weight)).max(initial=0))

    def global_scale(self, largest: float) -> float:
        # torch divides a number by a tensor as the number times the tensor's reciprocal: two roundings.
        smallest = numpy.finfo(numpy.float32).tiny
        with numpy.errstate(over="ignore"):
            scale = numpy.float32(1) / numpy.float32(max(largest, smallest)) * numpy.float32(E4M3_MAX * E2M1_MAX)
        return float(scale) if numpy.isfinite(scale) else 1.0

    def best_global_scale(self, weights: Array | Sequence[Array], search: Search) -> float:
        several = [weights] if isinstance(weights, numpy.ndarray) else weights
        return self.global_scale(max((self.largest(each) for each in several), default=0.0))

    def nvfp4(self, weight: Array, global_scale: float, search: Search = "minmax") -> Nvfp4:
        blocks = _blocks(weight)
        with numpy.errstate(over="ignore"):
            wanted = numpy.float32(global_scale) * (numpy.abs(blocks).max(axis=2) / numpy.float32(E2M1_MAX))
        scale = numpy.minimum(wanted, numpy.float32(E4M3_MAX)).astype(ml_dtypes.float8_e4m3fn)
        scale = numpy.where(scale == 0, numpy.float32(0.125), scale.astype(numpy.float32))
        codes = _codes(blocks, scale / numpy.float32(global_scale))
        return Nvfp4(codes, scale.astype(ml_dtypes.float8_e4m3fn))

    def weight_scale_2(self, largest: float) -> float:
        return float(numpy.float32(largest) / numpy.float32(E2M1_MAX * E4M3_MAX))

    def nvfp4_modelopt(self, weight: Array, weight_scale_2: float, search: Search = "minmax") -> Nvfp4:
        blocks = _blocks(weight)
        largest = numpy.abs(blocks).max(axis=2)
        with numpy.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scale = largest / (numpy.float32(E2M1_MAX) * numpy.float32(weight_scale_2))
        scale = numpy.where(largest == 0, numpy.float32(1), scale)
        scale = numpy.where(scale == 0, numpy.float32(1), scale)
        scale = numpy.clip(scale, 2.0**-9, E4M3_MAX).astype(ml_dtypes.float8_e4m3fn)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            codes = _codes(blocks, scale.astype(numpy.float32) * numpy.float32(weight_scale_2))
        return Nvfp4(codes, scale)

    def nvfp4_values(self, tensors: Nvfp4, multiplier: float, dtype: str, divisor: float = 1.0) -> Array:
        rows, half = tensors.packed.shape
        codes = numpy.stack((tensors.packed & 15, tensors.packed >> 4), axis=-1).reshape(rows, half * 2 // BLOCK, BLOCK)
        values = numpy.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7])
        scale = tensors.block_scale.astype(numpy.float32) * numpy.float32(multiplier) / numpy.float32(divisor)
        weight: Array = (values * scale[..., None]).reshape(rows, half * 2).astype(NUMPY_TYPES[dtype])
        return weight

    def nvfp4_deviation(self, weight: Array, tensors: Nvfp4, multiplier: float, divisor: float = 1.0) -> Deviation:
        return self.deviation(weight, self.nvfp4_values(tensors, multiplier, "F32", divisor))

    def fp8_block(self, weight: Array, block: tuple[int, int] = (128, 128)) -> ScaledCodes:
        rows, columns = weight.shape
        values = _finite(weight)
        padded = numpy.pad(numpy.abs(values), ((0, -rows % block[0]), (0, -columns % block[1])))
        high, wide = padded.shape[0] // block[0], padded.shape[1] // block[1]
        scale = padded.reshape(high, block[0], wide, block[1]).max(axis=(1, 3)) / numpy.float32(E4M3_MAX)
        scale = numpy.where(scale == 0, numpy.finfo(numpy.float32).eps, scale)
        spread = scale.repeat(block[0], axis=0).repeat(block[1], axis=1)[:rows, :columns]
        limited = numpy.clip(values / spread, -E4M3_MAX, E4M3_MAX)
        return ScaledCodes(limited.astype(ml_dtypes.float8_e4m3fn), scale)

    def fp8_values(self, tensors: ScaledCodes, block: tuple[int, int] | None, dtype: str) -> Array:
        rows, columns = tensors.codes.shape
        scale = tensors.scale.astype(numpy.float32)
        if block is None:
            spread = scale.reshape(-1, 1)
        else:
            spread = scale.repeat(block[0], axis=0).repeat(block[1], axis=1)[:rows, :columns]
        weight: Array = (tensors.codes.astype(numpy.float32) * spread).astype(NUMPY_TYPES[dtype])
        return weight

    def fp8_deviation(self, weight: Array, tensors: ScaledCodes, block: tuple[int, int] | None) -> Deviation:
        return self.deviation(weight, self.fp8_values(tensors, block, "F32"))

    def deviation(self, weight: Array, values: Array) -> Deviation:
        signal = weight.astype(numpy.float64)
        error = values.astype(numpy.float64) - signal
        return Deviation(
            float((error**2).sum()), float((signal**2).sum()), float(numpy.abs(error).max(initial=0)), error.size
        )


def _finite(weight: Array) -> Array:
    values = weight.astype(numpy.float32)
    if (bad := int((~numpy.isfinite(values)).sum())) > 0:
        raise ValueError(f"{bad} of {values.size} weights are NaN or infinite")
    return values


def _blocks(weight: Array) -> Array:
    rows, columns = weight.shape
    if columns % BLOCK:
        raise ValueError(f"{columns} in_features do not divide into blocks of {BLOCK}")
    return _finite(weight).reshape(rows, columns // BLOCK, BLOCK)


def _codes(blocks: Array, factor: Array) -> Array:
    """The packed codes of values in blocks. factor: of each block, what a code of 1 means."""
    wanted = blocks / factor[..., None]
    magnitude = numpy.abs(wanted)
    codes = numpy.zeros(magnitude.shape, numpy.uint8)
    for middle, even in zip(_MIDDLES, _TO_EVEN, strict=True):
        codes += magnitude > middle if even else magnitude >= middle
    # A zero has no sign: compressed-tensors and ModelOpt write -0.0 as code 0.
    codes |= (wanted < 0).astype(numpy.uint8) << 3
    packed: Array = codes[..., 0::2] | codes[..., 1::2] << 4
    return packed.reshape(len(blocks), blocks.shape[1] * BLOCK // 2)
