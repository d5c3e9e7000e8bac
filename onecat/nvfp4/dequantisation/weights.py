"""What a quantised weight is to a plan, and what both formats check of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy

from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.codec import Codec
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import Array

NAN = 127
"""E4M3's NaN without its sign (OCP 8-bit Floating Point Specification 1.0)."""
PIECE = 1 << 20
"""Codes that are looked at at once: they stay in a processor's cache, and no copy of a large tensor is made."""
LARGEST_HALF = float(numpy.finfo(numpy.float16).max)


class QuantisedWeight(Protocol):
    """A weight that is stored as codes and scales."""

    @property
    def scheme(self) -> str:
        """As `WeightScheme` names it."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the plain weight."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that `values` reads, in that order."""
        ...

    def values(self, source: SourceFiles, codec: Codec, dtype: str) -> Array:
        """The plain weight in `dtype` (F16, BF16, F32).

        Raises OnecatError when codes or scales are no numbers, or a value is too large for float16.
        """
        ...


@dataclass(frozen=True)
class Unreadable:
    """A module that is stored in a way that is not read here. scheme: what a message calls it."""

    scheme: str
    why: str


class Scaled(NamedTuple):
    """Values, and a bound of their magnitude before they were rounded to their type."""

    values: Array
    bound: float


def finite(source: SourceFiles, name: str, codes: Array) -> None:
    """Raises OnecatError when E4M3 codes [any shape] hold NaN, which a whole checkpoint never does."""
    bits = codes.reshape(-1).view(numpy.uint8)
    count = 0
    for start in range(0, bits.size, PIECE):
        magnitude = bits[start : start + PIECE] & 127
        if magnitude.max() == NAN:
            count += int((magnitude == NAN).sum())
    if count:
        raise damaged(source, f"{count} of {codes.size} elements of {name} are NaN")


def damaged(source: SourceFiles, what: str) -> OnecatError:
    """The error of contents that no writer leaves."""
    return OnecatError(
        what,
        expected="finite numbers; the file is damaged, or what wrote it failed",
        where=str(source.directory),
        next_steps=[f"onecat model verify {source.directory} --hash --weights", "download its weights again"],
        code=ExitCode.NO,
    )


def in_range(stem: str, scaled: Scaled) -> Array:
    """The values. Raises OnecatError when some of them became infinite because float16 ends at 65504."""
    values, bound = scaled
    if values.dtype == numpy.float16 and bound > LARGEST_HALF and (count := int(numpy.isinf(values).sum())):
        raise too_large(stem, count, values.size)
    return values


def too_large(stem: str, count: int, of: int) -> OnecatError:
    """The error of values that float16 cannot hold."""
    return OnecatError(
        f"{stem}: {count} of {of} values are beyond 65504, the largest number of float16",
        expected="weights that float16 can hold",
        next_steps=["use --dtype bfloat16, whose range is that of float32"],
        code=ExitCode.NO,
    )
