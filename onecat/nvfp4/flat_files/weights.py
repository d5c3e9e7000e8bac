"""What the codes of a flat file mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy

from onecat.nvfp4.dequantisation.weights import LARGEST_HALF, too_large
from onecat.nvfp4.flat_files.layouts import Layout
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.rewriting.records import Contents
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array

E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
CHUNK = 1 << 21
"""Weights that are computed at once."""


def meanings(layout: Layout) -> Array:
    """What each of the 16 codes is before it is multiplied with its scale (float32 [16])."""
    codes = numpy.arange(16)
    if layout.codes == "unsigned":
        values = codes - layout.zero_point
    elif layout.codes == "signed":
        values = numpy.where(codes < 8, codes, codes - 16)
    else:
        magnitude = numpy.array(E2M1)[codes & 7]
        values = numpy.where(codes < 8, magnitude, -magnitude)
    return values.astype(numpy.float32)


@dataclass(frozen=True)
class FlatWeight:
    """A matrix [out, in] of a flat file. scales, codes: names of its tensors in the source. module: for messages."""

    module: str
    shape: tuple[int, int]
    group_size: int
    scales: str
    codes: str
    layout: Layout

    def contents(self, source: SourceFiles, dtype: str) -> Contents:
        """The weight in `dtype` (F16, BF16, F32): meaning * scale in float32, rounded once.

        Measured are `mean` and `deviation` (standard), which tell whether the zero point is right.
        Raises ValueError when a scale is NaN or infinite, OnecatError when float16 cannot hold a value.
        """
        scales = source.read(self.scales).astype(numpy.float32)
        if wrong := int((~numpy.isfinite(scales)).sum()):
            raise ValueError(f"{wrong} of {scales.size} scales are NaN or infinite")
        table = meanings(self.layout)
        pairs = _pairs(table, high_first=self.layout.order == "high-first")
        stored = source.read(self.codes)
        words = stored.byteswap() if self.layout.order == "high-first" else stored
        content = words.view(numpy.uint8).reshape(scales.size, self.group_size // 2)
        made = numpy.empty((scales.size, self.group_size), NUMPY_TYPES[dtype])
        total = squares = 0.0
        step = max(1, CHUNK // self.group_size)
        for start in range(0, scales.size, step):
            part = slice(start, start + step)
            values = pairs[content[part]].reshape(-1, self.group_size) * scales[part, None]
            total += float(values.sum(dtype=numpy.float64))
            squares += float(numpy.square(values, dtype=numpy.float64).sum())
            with numpy.errstate(over="ignore"):
                made[part] = values
        bound = float(numpy.abs(table).max()) * float(numpy.abs(scales).max(initial=0))
        if dtype == "F16" and bound > LARGEST_HALF and (count := int(numpy.isinf(made).sum())):
            raise too_large(self.module, count, made.size)
        mean = total / made.size
        measured = {"mean": mean, "deviation": math.sqrt(max(squares / made.size - mean * mean, 0.0))}
        return Contents([made.reshape(self.shape)], measured)


def _pairs(table: Array, *, high_first: bool) -> Array:
    """The two values of each byte in the order in which they lie in a row (float32 [256, 2])."""
    codes = numpy.arange(256)
    low, high = table[codes & 15], table[codes >> 4]
    return numpy.stack((high, low) if high_first else (low, high), axis=1)
