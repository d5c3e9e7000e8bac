"""Small things that all of a codec needs to know of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from onecat.nvfp4.codec.kernels import PART
from onecat.nvfp4.codec.records import Deviation
from onecat.nvfp4.tensor_types import Array


def flat(array: Array) -> Array:
    """All elements in one row, without a copy when they lie so."""
    return numpy.ascontiguousarray(array).reshape(-1)


def values_of(dtype: numpy.dtype[Any]) -> Array:
    """The float32 values of the 256 codes of a type of one byte."""
    values: Array = numpy.arange(256, dtype=numpy.uint8).view(dtype).astype(numpy.float32)
    return values


def refusal(weight: Array) -> ValueError:
    """What to raise for a weight with NaN or Inf."""
    row, bad = flat(weight), 0
    for begin in range(0, row.size, PART):
        bad += int((~numpy.isfinite(row[begin : begin + PART].astype(numpy.float32))).sum())
    return ValueError(f"{bad} of {row.size} weights are NaN or infinite")


def total(deviations: Iterable[Deviation]) -> Deviation:
    """Those of parts as one."""
    found = list(deviations)
    return Deviation(
        sum((each.squared_error for each in found), 0.0),
        sum((each.squared_signal for each in found), 0.0),
        max((each.largest for each in found), default=0.0),
        sum(each.elements for each in found),
    )
