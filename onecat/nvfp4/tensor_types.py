"""How numpy holds what safetensors files store."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy
from numpy.typing import NDArray

Array = NDArray[Any]

NUMPY_TYPES: dict[str, numpy.dtype[Any]] = {
    "BOOL": numpy.dtype(numpy.bool_),
    "U8": numpy.dtype(numpy.uint8),
    "I8": numpy.dtype(numpy.int8),
    "U16": numpy.dtype("<u2"),
    "I16": numpy.dtype("<i2"),
    "U32": numpy.dtype("<u4"),
    "I32": numpy.dtype("<i4"),
    "U64": numpy.dtype("<u8"),
    "I64": numpy.dtype("<i8"),
    "F16": numpy.dtype("<f2"),
    "F32": numpy.dtype("<f4"),
    "F64": numpy.dtype("<f8"),
    "BF16": numpy.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": numpy.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": numpy.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": numpy.dtype(ml_dtypes.float8_e8m0fnu),
}
"""By the type names of the safetensors format; what is not here is copied as bytes and never computed with."""

FLOATS = ("F32", "F16", "BF16")
"""Types of plain weights."""
