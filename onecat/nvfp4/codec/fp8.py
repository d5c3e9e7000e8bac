"""FP8 weights: E4M3 codes with a float32 scale for each block, channel or tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy

from onecat.nvfp4.codec.arrays import refusal, values_of
from onecat.nvfp4.codec.kernels import PART, Crew
from onecat.nvfp4.codec.records import E4M3_MAX, Deviation, ScaledCodes
from onecat.nvfp4.codec.scales import E4M3
from onecat.nvfp4.tensor_types import Array

ZERO_SCALE = numpy.finfo(numpy.float32).eps
"""The scale of zeros: compressed-tensors 0.17.0, calculate_qparams with no scale_dtype."""

Answer = TypeVar("Answer")


def encode(crew: Crew, weight: Array, block: tuple[int, int]) -> ScaledCodes:
    """See `Codec.fp8_block`."""
    weight = numpy.ascontiguousarray(weight)
    rows, columns = weight.shape
    high, wide = (max(1, side) for side in block)
    scale = numpy.full((-(-rows // high), -(-columns // wide)), ZERO_SCALE, numpy.float32)
    codes = numpy.zeros((rows, columns), numpy.uint8)
    tall = _tall(columns)

    def code(number: int, memory: Any) -> bool:
        begin, end = number * high, min((number + 1) * high, rows)
        parts = [slice(top, min(top + tall, end)) for top in range(begin, end, tall)]
        maxima = numpy.zeros(columns, numpy.float32)
        for part in parts:
            numpy.maximum(maxima, crew.kernels.column_maxima(weight[part], memory), out=maxima)
        own = numpy.maximum.reduceat(maxima, numpy.arange(0, columns, wide)) / numpy.float32(E4M3_MAX)
        if not numpy.isfinite(own.max()):
            return False
        scale[number] = numpy.where(own == 0, ZERO_SCALE, own)
        spread = scale[number].repeat(wide)[:columns]
        for part in parts:
            crew.kernels.fp8(weight[part], spread, codes[part], memory)
        return True

    if weight.size and not all(crew.numbered(len(scale), min(tall, rows) * columns, code)):
        raise refusal(weight)
    return ScaledCodes(codes.view(E4M3), scale)


def values(crew: Crew, tensors: ScaledCodes, block: tuple[int, int] | None, dtype: numpy.dtype[Any]) -> Array:
    """See `Codec.fp8_values`."""
    found = numpy.empty(tensors.codes.shape, dtype)
    codes, table = _codes(tensors)

    def value(part: slice, scale: Array, memory: Any) -> None:
        crew.kernels.fp8_values(codes[part], table, scale, found[part], memory)

    _each(crew, tensors, block, value)
    return found


def deviations(crew: Crew, weight: Array, tensors: ScaledCodes, block: tuple[int, int] | None) -> list[Deviation]:
    """Of all parts; see `Codec.fp8_deviation`."""
    codes, table = _codes(tensors)
    weight = numpy.ascontiguousarray(weight)

    def deviate(part: slice, scale: Array, memory: Any) -> Deviation:
        return crew.kernels.fp8_deviation(weight[part], codes[part], table, scale, memory)

    return _each(crew, tensors, block, deviate)


def _codes(tensors: ScaledCodes) -> tuple[Array, Array]:
    codes = numpy.ascontiguousarray(tensors.codes)
    return codes.view(numpy.uint8), values_of(codes.dtype)


def _tall(columns: int) -> int:
    """The rows of a part."""
    return max(1, PART // max(1, columns))


def _each(
    crew: Crew,
    tensors: ScaledCodes,
    block: tuple[int, int] | None,
    work: Callable[[slice, Array, Any], Answer],
) -> list[Answer]:
    """The answers for parts of whole rows, with the scale as it spreads over each."""
    rows, columns = tensors.codes.shape
    scale = tensors.scale.astype(numpy.float32)
    if block is None:
        high, wide = (rows, columns) if scale.size == 1 else (1, columns)
    else:
        high, wide = block
    lying = -(-rows // max(1, high)), -(-columns // max(1, wide))
    if scale.size != lying[0] * lying[1]:
        shapes = f"{list(tensors.codes.shape)} codes and {list(scale.shape)} scales"
        raise ValueError(f"{shapes} do not fit together in blocks of {list(block or (high, wide))}")
    if rows * columns == 0:
        return []
    scale = numpy.where(numpy.isnan(scale), numpy.float32(numpy.nan), scale).reshape(lying)
    tall = _tall(columns)

    def part(number: int, memory: Any) -> list[Answer]:
        begin = number * tall
        end = min(begin + tall, rows)
        return [
            work(slice(top, bottom), spread, memory)
            for top, bottom, spread in _spreads(scale, begin, end, high, wide, columns)
        ]

    return [each for found in crew.numbered(-(-rows // tall), min(tall, rows) * columns, part) for each in found]


def _spreads(
    scale: Array, begin: int, end: int, high: int, wide: int, columns: int
) -> Iterator[tuple[int, int, Array]]:
    """Rows with the same scales, from begin to end, and those scales as they spread over them."""
    if scale.shape[1] == 1:
        yield begin, end, scale[numpy.arange(begin, end) // high]
        return
    while begin < end:
        bottom = min(end, (begin // high + 1) * high)
        yield begin, bottom, scale[begin // high].repeat(wide)[:columns]
        begin = bottom
