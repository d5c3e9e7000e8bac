"""The narrow number formats by their definitions, in float64 or float32, and comparison to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def e4m3(codes: Array) -> Array:
    """E4M3 by its definition: exponent bias 7, no infinity, NaN where all other bits are set."""
    codes = codes.astype(np.int64)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    value = np.where(codes & 0x7F == 0x7F, np.nan, value)
    return np.asarray(np.where(codes & 0x80, -value, value), np.float32)


def e2m1(codes: Array) -> Array:
    """E2M1 by its table."""
    return np.asarray(np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7]), np.float32)


def same_bits(found: Array, expected: Array) -> None:
    """Equal to the last bit, the sign of zero included; any NaN equals any other."""
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), nan)
    kind = np.uint16 if found.dtype == np.float16 else np.uint32
    assert np.array_equal(found.view(kind)[~nan], expected.view(kind)[~nan])
