"""A codec that works through weights in parts that fit a processor's cache, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from onecat.nvfp4.codec import fp8
from onecat.nvfp4.codec.arrays import flat, refusal, total, values_of
from onecat.nvfp4.codec.kernels import PART, Crew, Part
from onecat.nvfp4.codec.records import BLOCK, Deviation, Nvfp4, ScaledCodes, Search
from onecat.nvfp4.codec.scales import E4M3, CompressedTensors, Convention, ModelOpt, global_scale, weight_scale_2
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array

GLOBAL_SCALES = (15 / 16, 7 / 8, 13 / 16, 3 / 4, 2 / 3)
"""Of the scale of `minmax`: what a search tries besides it. With 2/3 the largest block has room for a scale with which
its largest magnitude becomes 4; the others move block scales against the steps of E4M3. On weights of normal and of t
distributions they find 0.1 to 0.2 % less of the squared error, so the search looks at a sample."""
SAMPLED = 64
"""Of so many parts of a weight, one is in the sample: the first, and each so many further on."""
GAIN = 1e-3
"""What another global scale has to be better by on the sample, as a part of the squared error."""


@dataclass(frozen=True)
class ThreadedCodec:
    """See `Codec`."""

    crew: Crew

    @property
    def name(self) -> str:
        return self.crew.kernels.name

    def largest(self, weight: Array) -> float:
        row, kernels = flat(weight), self.crew.kernels
        found = numpy.array(self.crew.each(row.size, lambda part, memory: kernels.largest(row[part.weights], memory)))
        largest = float(found.max(initial=0))
        if not numpy.isfinite(largest):
            raise refusal(row)
        return largest

    def global_scale(self, largest: float) -> float:
        return global_scale(largest)

    def best_global_scale(self, weights: Array | Sequence[Array], search: Search) -> float:
        several = [weights] if isinstance(weights, numpy.ndarray) else weights
        best = usual = global_scale(max((self.largest(each) for each in several), default=0.0))
        if search == "mse":
            least = self._sampled_error(several, usual) * (1 - GAIN)
            for ratio in GLOBAL_SCALES:
                scale = float(numpy.float32(usual * ratio))
                if (error := self._sampled_error(several, scale)) < least:
                    best, least = scale, error
        return best

    def _sampled_error(self, weights: Sequence[Array], scale: float) -> float:
        return sum(self._squared_error(_blocks(each), CompressedTensors(numpy.float32(scale))) for each in weights)

    def _squared_error(self, row: Array, convention: Convention) -> float:
        def error(number: int, memory: Any) -> float:
            begin = number * SAMPLED * PART
            errors = self.crew.kernels.least_errors(row[begin : begin + PART], convention, memory)
            return float(errors.sum(dtype=numpy.float64))

        return sum(self.crew.numbered(-(-row.size // (PART * SAMPLED)), min(PART, row.size), error))

    def nvfp4(self, weight: Array, global_scale: float, search: Search = "minmax") -> Nvfp4:
        return self._nvfp4(weight, CompressedTensors(numpy.float32(global_scale)), search)

    def weight_scale_2(self, largest: float) -> float:
        return weight_scale_2(largest)

    def nvfp4_modelopt(self, weight: Array, weight_scale_2: float, search: Search = "minmax") -> Nvfp4:
        return self._nvfp4(weight, ModelOpt(numpy.float32(weight_scale_2)), search)

    def _nvfp4(self, weight: Array, convention: Convention, search: Search) -> Nvfp4:
        row, kernels = _blocks(weight), self.crew.kernels
        packed, scale = numpy.empty(row.size // 2, numpy.uint8), numpy.empty(row.size // BLOCK, numpy.uint8)

        def code(part: Part, memory: Any) -> bool:
            made = packed[part.bytes], scale[part.blocks]
            return kernels.nvfp4(row[part.weights], convention, search, *made, memory)

        if not all(self.crew.each(row.size, code)):
            raise refusal(row)
        rows, columns = weight.shape
        return Nvfp4(packed.reshape(rows, columns // 2), scale.view(E4M3).reshape(rows, columns // BLOCK))

    def nvfp4_values(self, tensors: Nvfp4, multiplier: float, dtype: str, divisor: float = 1.0) -> Array:
        packed, factor = _factors(tensors, multiplier, divisor)
        found, kernels = numpy.empty(packed.size * 2, NUMPY_TYPES[dtype]), self.crew.kernels

        def value(part: Part, memory: Any) -> None:
            kernels.nvfp4_values(packed[part.bytes], factor(part.blocks), found[part.weights], memory)

        self.crew.each(found.size, value)
        rows, half = tensors.packed.shape
        return found.reshape(rows, half * 2)

    def nvfp4_deviation(self, weight: Array, tensors: Nvfp4, multiplier: float, divisor: float = 1.0) -> Deviation:
        row, kernels = _blocks(weight), self.crew.kernels
        packed, factor = _factors(tensors, multiplier, divisor)
        _same_shape(weight.shape, (tensors.packed.shape[0], tensors.packed.shape[1] * 2))

        def deviate(part: Part, memory: Any) -> Deviation:
            return kernels.nvfp4_deviation(row[part.weights], packed[part.bytes], factor(part.blocks), memory)

        return total(self.crew.each(row.size, deviate))

    def fp8_block(self, weight: Array, block: tuple[int, int] = (128, 128)) -> ScaledCodes:
        return fp8.encode(self.crew, weight, block)

    def fp8_values(self, tensors: ScaledCodes, block: tuple[int, int] | None, dtype: str) -> Array:
        return fp8.values(self.crew, tensors, block, NUMPY_TYPES[dtype])

    def fp8_deviation(self, weight: Array, tensors: ScaledCodes, block: tuple[int, int] | None) -> Deviation:
        _same_shape(weight.shape, tensors.codes.shape)
        return total(fp8.deviations(self.crew, weight, tensors, block))

    def deviation(self, weight: Array, values: Array) -> Deviation:
        _same_shape(weight.shape, values.shape)
        row, others, kernels = flat(weight), flat(values), self.crew.kernels

        def deviate(part: Part, memory: Any) -> Deviation:
            return kernels.deviation(row[part.weights], others[part.weights], memory)

        return total(self.crew.each(row.size, deviate))


def _blocks(weight: Array) -> Array:
    """The weight in one row, which is one block after another."""
    if weight.shape[1] % BLOCK:
        raise ValueError(f"{weight.shape[1]} in_features do not divide into blocks of {BLOCK}")
    return flat(weight)


def _factors(tensors: Nvfp4, multiplier: float, divisor: float) -> tuple[Array, Callable[[slice], Array]]:
    """Packed codes in one row, and what a code of 1 means in some of the blocks."""
    rows, half = tensors.packed.shape
    if half * 2 % BLOCK or tensors.block_scale.shape != (rows, half * 2 // BLOCK):
        shapes = f"{list(tensors.packed.shape)} packed bytes and {list(tensors.block_scale.shape)} block scales"
        raise ValueError(f"{shapes} do not fit together")
    codes, table = flat(tensors.block_scale).view(numpy.uint8), values_of(tensors.block_scale.dtype)
    times, by = (numpy.float32(each if each == each else numpy.nan) for each in (multiplier, divisor))
    return flat(tensors.packed), lambda blocks: table.take(codes[blocks]) * times / by


def _same_shape(weight: tuple[int, ...], other: tuple[int, ...]) -> None:
    if weight != other:
        raise ValueError(f"a weight of {list(weight)} cannot be compared with one of {list(other)}")
