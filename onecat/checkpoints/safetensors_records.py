"""What a safetensors file says of its tensors, and the error of one that is not whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of one element by the type names of the safetensors format."""


class Tensor(NamedTuple):
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
    """All tensors of one file, in file order.

    data_bytes: length of the tensor data. data_start: where it begins in the file, 0 for a header without a file.
    metadata: the strings that its writer left, such as `format`.
    """

    tensors: Sequence[Tensor]
    data_bytes: int
    data_start: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


class HeaderError(ValueError):
    """The file is not a whole safetensors file. `code` is one of the problem codes of `inspect`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def bad_header(text: str) -> HeaderError:
    """The error of a header that is none or contradicts itself."""
    return HeaderError("bad-header", text)


def printable(text: str) -> str:
    """Text from a file as it may be printed: its escapes shown, and no more of it than a line holds."""
    return ascii(text if len(text) <= 120 else f"{text[:117]}...")
