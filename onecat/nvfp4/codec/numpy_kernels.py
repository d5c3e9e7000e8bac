"""The loops of a codec in numpy.

Blocks lie side by side here, not one after another: row k of a [16, blocks] array holds element k of each block. So
what each block has one of is one row, and numpy works along rows of thousands.
"""

from __future__ import annotations

from typing import ClassVar

import numpy

from onecat.nvfp4.codec.records import BLOCK, Deviation, Search
from onecat.nvfp4.codec.rounding import BFLOAT16, from_float32, to_e2m1_values, to_e4m3_codes, to_float32
from onecat.nvfp4.codec.scales import Convention, candidates
from onecat.nvfp4.tensor_types import Array

E2M1_VALUES: Array = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], numpy.float32)
_MIDDLES = (
    (numpy.greater, numpy.float32(0.25)),
    (numpy.greater_equal, numpy.float32(0.75)),
    (numpy.greater, numpy.float32(1.25)),
    (numpy.greater_equal, numpy.float32(1.75)),
    (numpy.greater, numpy.float32(2.5)),
    (numpy.greater_equal, numpy.float32(3.5)),
    (numpy.greater, numpy.float32(5)),
)
"""In the middle between code k and k + 1 the one with an even mantissa is right."""
E2M1_PAIRS: Array = numpy.stack((numpy.tile(E2M1_VALUES, 16), E2M1_VALUES.repeat(16)), axis=1)
"""Both values of each packed byte."""
NOISE = numpy.float32(2.0**-18)
"""Squared errors of a block are sums in float32: only what is less by more than this part is less for sure."""
UNDERFLOW = numpy.float32(2.0**-100)
"""Squared errors of a block below this have lost bits: the search leaves such blocks alone."""


class Scratch:
    """Memory of one thread, for parts of so many weights: 33 bytes for each."""

    def __init__(self, elements: int) -> None:
        self.read = numpy.zeros(elements, numpy.float32)
        """Weights as they are read. Nothing else may stand here: to_float32 writes half of the bytes of bfloat16."""
        self.first, self.second, self.third = (numpy.empty(elements, numpy.float32) for _ in range(3))
        self.mask, self.codes = numpy.empty(elements, numpy.bool_), numpy.empty(elements, numpy.uint8)
        self.signal, self.error = (numpy.empty(elements, numpy.float64) for _ in range(2))


class NumpyKernels:
    """See `Kernels`."""

    name: ClassVar[str] = "numpy"

    def scratch(self, elements: int) -> Scratch:
        return Scratch(elements)

    def largest(self, weight: Array, scratch: Scratch) -> float:
        values = _like(weight, scratch.read)
        to_float32(weight, values)
        return float(numpy.abs(values, out=_like(values, scratch.first)).max())

    def nvfp4(
        self, weight: Array, convention: Convention, search: Search, packed: Array, scale: Array, scratch: Scratch
    ) -> bool:
        blocks = scale.size
        values = scratch.read[: weight.size].reshape(BLOCK, blocks)
        first, mask, codes = (_like(values, each) for each in (scratch.first, scratch.mask, scratch.codes))
        to_float32(weight.reshape(blocks, BLOCK).T, values)
        largest = numpy.maximum.reduce(numpy.abs(values, out=first), axis=0)
        if not numpy.isfinite(largest.max()):
            return False
        if search == "mse":
            scale[:], _ = _least_error(first, largest, convention, scratch)
        else:
            scale[:] = convention.codes(convention.block_scale(largest))
        numpy.divide(values, convention.factor(scale), out=first)
        # A zero has no sign: compressed-tensors and ModelOpt write -0.0 as code 0.
        numpy.less(first, 0, out=mask)
        numpy.left_shift(mask.view(numpy.uint8), 3, out=codes)
        numpy.abs(first, out=first)
        for compare, middle in _MIDDLES:
            compare(first, middle, out=mask)
            numpy.add(codes, mask.view(numpy.uint8), out=codes)
        numpy.left_shift(codes[1::2], 4, out=codes[1::2])
        numpy.bitwise_or(codes[1::2], codes[0::2], out=packed.reshape(blocks, BLOCK // 2).T)
        return True

    def least_errors(self, weight: Array, convention: Convention, scratch: Scratch) -> Array:
        values = scratch.read[: weight.size].reshape(BLOCK, weight.size // BLOCK)
        first = _like(values, scratch.first)
        to_float32(weight.reshape(-1, BLOCK).T, values)
        largest = numpy.maximum.reduce(numpy.abs(values, out=first), axis=0)
        return _least_error(first, largest, convention, scratch)[1]

    def nvfp4_values(self, packed: Array, factor: Array, found: Array, scratch: Scratch) -> None:
        if found.dtype == numpy.float32:
            _values(packed, factor, found)
        else:
            values = scratch.first[: found.size]
            _values(packed, factor, values)
            from_float32(values, found, scratch.second[: found.size])

    def nvfp4_deviation(self, weight: Array, packed: Array, factor: Array, scratch: Scratch) -> Deviation:
        values = scratch.first[: weight.size]
        _values(packed, factor, values)
        return self.deviation(weight, values, scratch)

    def column_maxima(self, weight: Array, scratch: Scratch) -> Array:
        values = _like(weight, scratch.read)
        to_float32(weight, values)
        maxima: Array = numpy.maximum.reduce(numpy.abs(values, out=_like(values, scratch.first)), axis=0)
        return maxima

    def fp8(self, weight: Array, scale: Array, codes: Array, scratch: Scratch) -> None:
        values = _like(weight, scratch.read)
        first, second = _like(values, scratch.first), _like(values, scratch.second)
        to_float32(weight, values)
        numpy.divide(values, scale, out=first)
        sign, work = second.view(numpy.uint32), _like(values, scratch.third)
        numpy.right_shift(first.view(numpy.uint32), 24, out=sign)
        numpy.bitwise_and(sign, 0x80, out=sign)
        bits = to_e4m3_codes(numpy.abs(first, out=first), work)
        numpy.bitwise_or(bits, sign, out=codes, casting="unsafe")

    def fp8_values(self, codes: Array, table: Array, scale: Array, found: Array, scratch: Scratch) -> None:
        values = found if found.dtype == numpy.float32 else _like(codes, scratch.first)
        numpy.take(table, codes, out=values, mode="clip")
        numpy.multiply(values, scale, out=values)
        if values is not found:
            from_float32(values, found, _like(values, scratch.second))

    def fp8_deviation(self, weight: Array, codes: Array, table: Array, scale: Array, scratch: Scratch) -> Deviation:
        values = _like(codes, scratch.first)
        self.fp8_values(codes, table, scale, values, scratch)
        return self.deviation(weight, values, scratch)

    def deviation(self, weight: Array, values: Array, scratch: Scratch) -> Deviation:
        signal, error = scratch.signal[: weight.size], scratch.error[: weight.size]
        for array, exact in ((weight.reshape(-1), signal), (values.reshape(-1), error)):
            if array.dtype in (BFLOAT16, numpy.float16):
                to_float32(array, scratch.read[: weight.size])
                array = scratch.read[: weight.size]
            numpy.copyto(exact, array)
        numpy.subtract(error, signal, out=error)
        # Not numpy.dot: BLAS would start threads of its own for each part.
        squared_error, squared_signal = (float(numpy.einsum("i,i->", each, each)) for each in (error, signal))
        return Deviation(squared_error, squared_signal, float(numpy.abs(error, out=error).max()), weight.size)


def _like(array: Array, memory: Array) -> Array:
    """As much of the memory as the array has elements, in its shape."""
    part: Array = memory[: array.size].reshape(array.shape)
    return part


def _values(packed: Array, factor: Array, found: Array) -> None:
    numpy.take(E2M1_PAIRS.view(numpy.complex64)[:, 0], packed, out=found.view(numpy.complex64), mode="clip")
    rows = found.reshape(factor.size, BLOCK)
    numpy.multiply(rows, factor[:, None], out=rows)


def _least_error(magnitude: Array, largest: Array, convention: Convention, scratch: Scratch) -> tuple[Array, Array]:
    """Of the candidates the block scales (E4M3 codes) with the least squared error, and that error in float32.

    It is summed in halves: elements 0 to 7 and 8 to 15, then 0 to 3 and 4 to 7 of those, and so on.
    """
    trial, work = _like(magnitude, scratch.second), _like(magnitude, scratch.third)
    best = numpy.empty(0, numpy.uint8)
    least = to_beat = numpy.empty(0, numpy.float32)
    for codes in candidates(convention, largest):
        factor = convention.factor(codes)
        numpy.divide(magnitude, factor, out=trial)
        to_e2m1_values(trial, work)
        numpy.multiply(trial, factor, out=trial)
        numpy.subtract(trial, magnitude, out=trial)
        numpy.multiply(trial, trial, out=trial)
        for half in (8, 4, 2, 1):
            numpy.add(trial[:half], trial[half : 2 * half], out=trial[:half])
        error = trial[0]
        if best.size == 0:
            best, least = codes, error.copy()
            to_beat = numpy.where(least > UNDERFLOW, least - least * NOISE, numpy.float32(0))
        else:
            better = error < to_beat
            best[better] = codes[better]
            least[better] = to_beat[better] = error[better]
    return best, least
