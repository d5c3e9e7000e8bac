"""Conversions of floating-point types in numpy, in place, without the slow casts of ml_dtypes.

A float32 is rounded to steps of 2^k, ties to even, by adding 1.5 * 2^(23 + k) and taking it away again: there are no
finer float32 numbers near that sum. With the largest power of two in each number times a constant in its place, numbers
are rounded to so many bits (Knuth, The Art of Computer Programming 2, 4.2.2).
"""

from __future__ import annotations

import ml_dtypes
import numpy

from onecat.nvfp4.codec.records import E2M1_MAX, E4M3_MAX
from onecat.nvfp4.tensor_types import Array

BFLOAT16 = numpy.dtype(ml_dtypes.bfloat16)
_EXPONENT = numpy.uint32(0x7F800000)
_TO_E4M3_BITS = numpy.float32(2.0**-120)
"""The exponents of E4M3 (bias 7) in the place of those of float32 (bias 127)."""
_TO_FLOAT16_BITS = numpy.float32(2.0**-112)
_FROM_FLOAT16_BITS = numpy.float32(2.0**112)


def to_float32(values: Array, found: Array) -> None:
    """Write values (float32, float16, bfloat16) as float32.

    found: float32, for bfloat16 with zeros or former values of bfloat16 in it.
    """
    if values.dtype == BFLOAT16:
        found.view(numpy.uint16).reshape(*found.shape, 2)[..., 1] = values.view(numpy.uint16)
    elif values.dtype == numpy.float16:
        bits = found.view(numpy.uint32)
        numpy.copyto(bits, values.view(numpy.uint16))
        sign = numpy.left_shift(numpy.bitwise_and(bits, 0x8000), 16)
        numpy.bitwise_and(bits, 0x7FFF, out=bits)
        numpy.left_shift(bits, 13, out=bits)
        numpy.multiply(found, _FROM_FLOAT16_BITS, out=found)
        if (special := found >= numpy.float32(65536)).any():
            bits[special] |= _EXPONENT
        numpy.bitwise_or(bits, sign, out=bits)
    else:
        numpy.copyto(found, values)


def from_float32(values: Array, found: Array, work: Array) -> None:
    """Round float32 values once to the type of `found`. They are lost, and so is `work` (float32 of their size).

    NaN must be the one that numpy.nan is: others could become numbers of bfloat16.
    """
    if found.dtype == BFLOAT16:
        bits, last = values.view(numpy.uint32), work.view(numpy.uint32)
        numpy.right_shift(bits, 16, out=last)
        numpy.bitwise_and(last, 1, out=last)
        numpy.add(last, 0x7FFF, out=last)
        numpy.add(bits, last, out=bits)
        numpy.copyto(found.view(numpy.uint16), values.view(numpy.uint16).reshape(*values.shape, 2)[..., 1])
    elif found.dtype == numpy.float16:
        bits = found.view(numpy.uint16)
        numpy.copyto(bits, values.view(numpy.uint16).reshape(*values.shape, 2)[..., 1])
        numpy.bitwise_and(bits, 0x8000, out=bits)
        numpy.abs(values, out=values)
        numpy.minimum(values, numpy.float32(65536), out=values)
        _round(values, work, numpy.float32(2.0**-14), numpy.float32(1.5 * 2**13))
        numpy.multiply(values, _TO_FLOAT16_BITS, out=values)
        numpy.right_shift(values.view(numpy.uint32), 13, out=work.view(numpy.uint32))
        numpy.bitwise_or(bits, work.view(numpy.uint32), out=bits, casting="unsafe")
        if numpy.isnan(values.max()):
            bits[numpy.isnan(values)] = 0x7E00
    else:
        numpy.copyto(found, values, casting="same_kind")


def to_e2m1_values(values: Array, work: Array) -> None:
    """Round non-negative values to those of E2M1, in place. work: float32 of the same size, lost."""
    numpy.minimum(values, numpy.float32(E2M1_MAX), out=values)
    _round(values, work, numpy.float32(1), numpy.float32(1.5 * 2**22))


def to_e4m3_codes(values: Array, work: Array) -> Array:
    """The codes (uint32, in the memory of `values`) of the nearest E4M3 values to non-negative ones; at most 448's."""
    numpy.minimum(values, numpy.float32(E4M3_MAX), out=values)
    _round(values, work, numpy.float32(2.0**-6), numpy.float32(1.5 * 2**20))
    numpy.multiply(values, _TO_E4M3_BITS, out=values)
    bits = values.view(numpy.uint32)
    numpy.right_shift(bits, 20, out=bits)
    return bits


def _round(values: Array, work: Array, normal: numpy.float32, magic: numpy.float32) -> None:
    """Round in place. normal: the smallest number with a bit of its own. magic: for numbers from 1 to 2."""
    numpy.maximum(values, normal, out=work)
    bits = work.view(numpy.uint32)
    numpy.bitwise_and(bits, _EXPONENT, out=bits)
    numpy.multiply(work, magic, out=work)
    numpy.add(values, work, out=values)
    numpy.subtract(values, work, out=values)
