"""What would explain a weight that is far from its original, found by trying. Pure but for the reading of scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy

from onecat.nvfp4.codec import BLOCK, Codec
from onecat.nvfp4.comparison.limits import limits_of
from onecat.nvfp4.comparison.stored import Quantised, Stored, to_float32
from onecat.nvfp4.conversion.records import relative_error
from onecat.nvfp4.dequantisation.nvfp4_weights import Nvfp4Weight
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import Array

MOST_ELEMENTS = 1 << 25
"""Of a weight that is tried, its first rows: each try takes several times their bytes."""

TILE_ROWS, TILE_COLUMNS = 128, 4
"""Block scales that NVIDIA's kernels keep together: element (r, c) of a tile lies at (r mod 32, r div 32, c).

Source: https://docs.nvidia.com/cuda/cublas/ (1D block scaling factors layout)
"""

EXACT = 0.02
"""How near to one of the conventions the factor of a tensor has to be: rounding moves it by far less."""


@dataclass(frozen=True)
class Case:
    """A wrong weight, or its first rows, in whole tiles. original, values: [out, in] float32.

    head: rows of an attention head, None where unknown.
    """

    stored: Stored
    original: Array
    values: Array
    head: int | None


Sibling = Callable[[], Iterator[tuple[str, Array]]]


def first_rows(values: Array) -> Array:
    """As much of [out, in] as is tried, in float32."""
    rows = max(1, MOST_ELEMENTS // max(1, values.shape[1]) // TILE_ROWS) * TILE_ROWS
    return to_float32(values[:rows])


def cause_of(case: Case, source: SourceFiles, codec: Codec, siblings: Sibling) -> str | None:
    """What makes the weight like its original, in words; None when nothing that was tried does.

    Parameters:
        siblings: gives the first rows of the other weights of the original beside this one that have its shape, by
            the last word of their modules.
    """
    original, values = case.original, case.values
    if not original.any():
        return None
    if not values.any():
        return "all values are zero"
    limit = limits_of(case.stored.scheme).warn

    def fits(tried: Array) -> bool:
        return relative_error(codec.deviation(original, numpy.ascontiguousarray(tried))) <= limit

    for told, tried in _orders(case, source):
        if fits(tried):
            return told
        # Two faults at once: the wrong order, and a scale of the other convention.
        if (factor := _factor(original, tried)) and fits(tried * numpy.float32(factor)):
            scaled = _scaled(case, factor, source)
            return scaled if told == "" else f"{told}, and {scaled}"
    if (columns := _columns(original, values)) is not None and fits(columns):
        return "each column has another size, as smoothing leaves it (AWQ, SmoothQuant): the norm before it " \
               "must be changed with it"  # fmt: skip
    for name, other in siblings():
        if relative_error(codec.deviation(other, values)) <= limit:
            return f"the module holds what the original has as {name}"
    return None


def _orders(case: Case, source: SourceFiles) -> Iterator[tuple[str, Array]]:
    """The values in other orders; first in their own."""
    values = case.values
    yield "", values
    if values.shape[1] % 2 == 0:
        yield "the nibbles are swapped: the even column is in the high four bits", swapped(values)
    if (mended := _unswizzled(case, source)) is not None:
        yield "the block scales lie in the order of NVIDIA's kernels (tiles of 128 x 4), not row by row", mended
    if values.shape[0] == values.shape[1] == case.stored.shape[0]:
        yield "the matrix is transposed", values.T
    if case.head is not None and case.head % 2 == 0 and values.shape[0] % case.head == 0:
        heads = values.reshape(-1, case.head // 2, 2, values.shape[1])
        yield "the rows of heads are interleaved (Meta's rotary layout)", heads.swapaxes(1, 2).reshape(values.shape)
        halves = values.reshape(-1, 2, case.head // 2, values.shape[1])
        yield "the rows of heads are in halves where the original interleaves them (Meta's rotary layout)", \
              halves.swapaxes(1, 2).reshape(values.shape)  # fmt: skip


def swapped(values: Array) -> Array:
    """Columns 2 j and 2 j + 1 exchanged: what the codes mean when the even column is in the high four bits."""
    return values.reshape(*values.shape[:-1], -1, 2)[..., ::-1].reshape(values.shape)


def _factor(original: Array, values: Array) -> float | None:
    """What the values must be multiplied with to be nearest to the original, as least squares have it."""
    length = _dot(values, values)
    return _dot(original, values) / length if length and math.isfinite(length) else None


def _dot(one: Array, other: Array) -> float:
    return float(numpy.einsum("ij,ij->", one, other, dtype=numpy.float64))


def _scaled(case: Case, factor: float, source: SourceFiles) -> str:
    """What a wrong size of all values means."""
    weight = case.stored.weight if isinstance(case.stored, Quantised) else None
    if factor < 0:
        return "all signs are turned"
    if isinstance(weight, Nvfp4Weight) and weight.experts is None:
        scale = float(to_float32(source.read(weight.tensor_scale)).reshape(-1)[0])
        inverted = scale * scale if weight.reciprocal else 1 / (scale * scale)
        if abs(factor / inverted - 1) < EXACT:
            name = weight.tensor_scale.rpartition(".")[2]
            other = "multiply (as ModelOpt's do)" if weight.reciprocal else "divide (as those of compressed-tensors do)"
            return f"the tensor scale is inverted: {name} holds a number that is meant to {other}"
    return f"all values are about {1 / factor:.2g} times those of the original"


def _unswizzled(case: Case, source: SourceFiles) -> Array | None:
    """The values with the block scales read in the order of tiles; None where they cannot lie so."""
    weight = case.stored.weight if isinstance(case.stored, Quantised) else None
    if not isinstance(weight, Nvfp4Weight) or weight.experts is not None:
        return None
    scales = to_float32(source.read(weight.block_scale))
    rows, columns = scales.shape
    if rows % TILE_ROWS or columns % TILE_COLUMNS:
        return None
    tiles = scales.reshape(rows // TILE_ROWS, columns // TILE_COLUMNS, 32, TILE_ROWS // 32, TILE_COLUMNS)
    ordered = tiles.transpose(0, 3, 2, 1, 4).reshape(rows, columns)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        ratio = numpy.where(scales == 0, numpy.float32(0), ordered / scales)
    blocks: Array = case.values.reshape(-1, columns, BLOCK) * ratio[: len(case.values), :, None]
    return blocks.reshape(case.values.shape)


def _columns(original: Array, values: Array) -> Array | None:
    """The values with each column in its best size; None for matrices with few rows, where that fits anything."""
    if values.shape[0] < 64:
        return None
    products = numpy.einsum("ij,ij->j", original, values, dtype=numpy.float64)
    lengths = numpy.einsum("ij,ij->j", values, values, dtype=numpy.float64)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        sizes = numpy.where(lengths == 0, 0.0, products / lengths)
    sized: Array = values * sizes.astype(numpy.float32)
    return sized
