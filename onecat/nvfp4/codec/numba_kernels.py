"""The loops of a codec, compiled: several times as fast as numpy's. Importing this imports numba."""

from __future__ import annotations

from typing import ClassVar

import numpy

from onecat.nvfp4.codec import numba_loops as loops
from onecat.nvfp4.codec.numpy_kernels import E2M1_PAIRS
from onecat.nvfp4.codec.records import BLOCK, Deviation, Search
from onecat.nvfp4.codec.rounding import BFLOAT16, to_float32
from onecat.nvfp4.codec.scales import E4M3_VALUES, CompressedTensors, Convention, ModelOpt
from onecat.nvfp4.tensor_types import Array

_INFINITY = 0x7F800000


class Scratch:
    """Memory of one thread, for parts of so many weights: 9 bytes for each."""

    def __init__(self, elements: int) -> None:
        self.read, self.values = (numpy.empty(elements, numpy.float32) for _ in range(2))
        self.maxima = numpy.empty(max(1, elements // BLOCK), numpy.float32)
        self.errors = numpy.empty_like(self.maxima)
        self.trial, self.codes = numpy.empty(BLOCK, numpy.float32), numpy.empty(BLOCK, numpy.int32)


class NumbaKernels:
    """See `Kernels`."""

    name: ClassVar[str] = "numba"

    def scratch(self, elements: int) -> Scratch:
        return Scratch(elements)

    def largest(self, weight: Array, scratch: Scratch) -> float:
        found = numpy.empty(1, numpy.uint32)
        found[0] = loops.largest_bits(_floats(weight, scratch.read).view(numpy.uint32))
        return float(found.view(numpy.float32)[0])

    def column_maxima(self, weight: Array, scratch: Scratch) -> Array:
        found = numpy.zeros(weight.shape[1], numpy.uint32)
        loops.column_maxima(_floats(weight, scratch.read).view(numpy.uint32), found)
        return found.view(numpy.float32)

    def nvfp4(
        self, weight: Array, convention: Convention, search: Search, packed: Array, scale: Array, scratch: Scratch
    ) -> bool:
        values, finite = self._scales(weight, convention, search, scale, scratch)
        if finite:
            loops.pack(values, scale, *_stated(convention), E4M3_VALUES, scratch.codes, packed)
        return finite

    def least_errors(self, weight: Array, convention: Convention, scratch: Scratch) -> Array:
        scale = numpy.empty(weight.size // BLOCK, numpy.uint8)
        self._scales(weight, convention, "mse", scale, scratch)
        return scratch.errors[: scale.size]

    def _scales(
        self, weight: Array, convention: Convention, search: Search, scale: Array, scratch: Scratch
    ) -> tuple[Array, bool]:
        """The weight in float32, and whether all of it is finite. scale: where the E4M3 codes go."""
        values, maxima = _floats(weight, scratch.read), scratch.maxima[: scale.size]
        if loops.block_maxima(values.view(numpy.uint32), maxima.view(numpy.uint32)) >= _INFINITY:
            return values, False
        stated = _stated(convention)
        loops.scales_of_largest(maxima, *stated, scale)
        if search == "mse":
            loops.search(values, maxima, *stated, E4M3_VALUES, scratch.trial, scale, scratch.errors)
        return values, True

    def nvfp4_values(self, packed: Array, factor: Array, found: Array, scratch: Scratch) -> None:
        values = found if found.dtype == numpy.float32 else scratch.values[: found.size]
        loops.unpack(packed, factor, E2M1_PAIRS, values)
        _narrow(values, found)

    def nvfp4_deviation(self, weight: Array, packed: Array, factor: Array, scratch: Scratch) -> Deviation:
        values = scratch.values[: weight.size]
        loops.unpack(packed, factor, E2M1_PAIRS, values)
        return _deviation(_floats(weight, scratch.read), values)

    def fp8(self, weight: Array, scale: Array, codes: Array, scratch: Scratch) -> None:
        loops.fp8_pack(_floats(weight, scratch.read), scale, codes)

    def fp8_values(self, codes: Array, table: Array, scale: Array, found: Array, scratch: Scratch) -> None:
        values = found if found.dtype == numpy.float32 else scratch.values[: codes.size].reshape(codes.shape)
        loops.fp8_unpack(codes, table, numpy.broadcast_to(scale, codes.shape), values)
        _narrow(values.reshape(-1), found.reshape(-1))

    def fp8_deviation(self, weight: Array, codes: Array, table: Array, scale: Array, scratch: Scratch) -> Deviation:
        values = scratch.values[: codes.size].reshape(codes.shape)
        loops.fp8_unpack(codes, table, numpy.broadcast_to(scale, codes.shape), values)
        return _deviation(_floats(weight, scratch.read).reshape(-1), values.reshape(-1))

    def deviation(self, weight: Array, values: Array, scratch: Scratch) -> Deviation:
        return _deviation(_floats(weight, scratch.read), _floats(values, scratch.values))


def _stated(convention: Convention) -> tuple[bool, numpy.float32]:
    """Whether it is ModelOpt's, and the scale of the tensor."""
    if isinstance(convention, ModelOpt):
        return True, convention.weight_scale_2
    assert isinstance(convention, CompressedTensors)
    return False, convention.global_scale


def _floats(weight: Array, memory: Array) -> Array:
    """The weight in float32, in this memory where it has another type."""
    if weight.dtype == numpy.float32:
        return weight
    values: Array = memory[: weight.size].reshape(weight.shape)
    if weight.dtype == BFLOAT16:
        loops.widen(weight.reshape(-1).view(numpy.uint16), values.reshape(-1).view(numpy.uint32))
    else:
        to_float32(weight, values)
    return values


def _narrow(values: Array, found: Array) -> None:
    if found.dtype == BFLOAT16:
        loops.narrow(values.view(numpy.uint32), found.view(numpy.uint16))
    elif found.dtype == numpy.float16:
        loops.narrow_float16(values, found.view(numpy.uint16))


def _deviation(weight: Array, values: Array) -> Deviation:
    sums = numpy.zeros((3, 8), numpy.float64)
    loops.deviate(weight, values, sums)
    return Deviation(float(sums[0].sum()), float(sums[1].sum()), float(sums[2].max()), weight.size)
