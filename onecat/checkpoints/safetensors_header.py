"""The header of a safetensors file: names, types, shapes and offsets of its tensors, read without the weights.

Format: 8 bytes little-endian header length N, N bytes of JSON, then the tensor data without gaps.
Source: https://github.com/huggingface/safetensors (README, "Format").
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAXIMUM_HEADER_BYTES = 100_000_000
"""Headers above this are refused by the safetensors library itself."""

LFS_POINTER = b"version https://git-lfs"

BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of one element by the type names of the safetensors format."""


@dataclass(frozen=True)
class Tensor:
    """One stored tensor; begin and end are byte offsets after the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """All tensors of one file, in file order; `data_bytes` is the length of the tensor data."""

    tensors: tuple[Tensor, ...]
    data_bytes: int


class HeaderError(ValueError):
    """The file is not a whole safetensors file. `code` is one of the problem codes of `inspect`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def read_header(path: Path) -> Header:
    """Read and verify one file's header against the file's size.

    Raises HeaderError with code `lfs-pointer`, `truncated`, `overlong` or `bad-header`; OSError when unreadable.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if (start + file.read(len(LFS_POINTER) - 8)).startswith(LFS_POINTER):
            raise HeaderError("lfs-pointer", "is a Git LFS pointer, not the weights")
        if len(start) < 8:
            raise HeaderError("truncated", f"holds {size} bytes, less than the 8 bytes of a header length")
        length = int.from_bytes(start, "little")
        if length > MAXIMUM_HEADER_BYTES:
            raise HeaderError("bad-header", f"claims a header of {length} bytes; it is not a safetensors file")
        if 8 + length > size:
            raise HeaderError("truncated", f"is cut off in its header: {size} bytes, header needs {8 + length}")
        file.seek(8)
        text = file.read(length)
    header = parse_header(text)
    expected = 8 + length + header.data_bytes
    if size < expected:
        raise HeaderError("truncated", f"is cut off: {size} bytes, its header describes {expected}")
    if size > expected:
        raise HeaderError("overlong", f"has {size - expected} bytes more than the {expected} its header describes")
    return header


def parse_header(text: bytes) -> Header:
    """The header's JSON as a record. Raises HeaderError(`bad-header`) when it contradicts itself."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HeaderError("bad-header", f"has a header that is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise HeaderError("bad-header", "has a header that is not a JSON object")
    tensors = sorted(
        (_tensor(name, entry) for name, entry in document.items() if name != "__metadata__"),
        key=lambda tensor: (tensor.begin, tensor.end),
    )
    position = 0
    for tensor in tensors:
        if tensor.begin != position:
            raise HeaderError("bad-header", f"has a gap or overlap before tensor {tensor.name!r}")
        position = tensor.end
    return Header(tuple(tensors), position)


def _tensor(name: str, entry: Any) -> Tensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise HeaderError("bad-header", f"describes tensor {name!r} incompletely") from error
    numbers = (*shape, begin, end)
    if not isinstance(dtype, str) or not all(type(number) is int and number >= 0 for number in numbers):
        raise HeaderError("bad-header", f"describes tensor {name!r} with values of the wrong type")
    tensor = Tensor(name, dtype, shape, begin, end)
    bits = BITS.get(dtype)
    if end < begin or (bits is not None and (tensor.elements * bits + 7) // 8 != end - begin):
        raise HeaderError("bad-header", f"gives tensor {name!r} a length that does not match its shape")
    return tensor
