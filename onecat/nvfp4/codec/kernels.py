"""What a codec's loops do with a part of a weight, and the threads that take such parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy

from onecat.nvfp4.codec.parts import each_part
from onecat.nvfp4.codec.records import BLOCK, Deviation, Search
from onecat.nvfp4.codec.scales import Convention
from onecat.nvfp4.tensor_types import Array

PART = 65536
"""Weights that a thread works on at a time: with all that it needs besides, 2 MB."""
Answer = TypeVar("Answer")


class Part(NamedTuple):
    """Where a part of a weight in NVFP4 lies in its elements, its packed bytes and its blocks."""

    weights: slice
    bytes: slice
    blocks: slice


class Kernels(Protocol):
    """The loops of a codec, over one part: contiguous, not empty, at most as large as the scratch memory was made for.

    All of them give the same bits.
    """

    @property
    def name(self) -> str: ...

    def scratch(self, elements: int) -> Any:
        """Memory for one thread that works on parts of so many weights."""
        ...

    def largest(self, weight: Array, scratch: Any) -> float:
        """The largest magnitude; NaN or Inf when there is one."""
        ...

    def column_maxima(self, weight: Array, scratch: Any) -> Array:
        """The largest magnitude in each column [in]."""
        ...

    def nvfp4(
        self, weight: Array, convention: Convention, search: Search, packed: Array, scale: Array, scratch: Any
    ) -> bool:
        """Write packed codes and E4M3 codes of block scales (both uint8); False when there is NaN or Inf."""
        ...

    def least_errors(self, weight: Array, convention: Convention, scratch: Any) -> Array:
        """The squared error (float32) of each block with the scale that a search finds."""
        ...

    def nvfp4_values(self, packed: Array, factor: Array, found: Array, scratch: Any) -> None:
        """Write what packed codes mean. factor: of each block, what a code of 1 means."""
        ...

    def nvfp4_deviation(self, weight: Array, packed: Array, factor: Array, scratch: Any) -> Deviation: ...

    def fp8(self, weight: Array, scale: Array, codes: Array, scratch: Any) -> None:
        """Write E4M3 codes (uint8). scale: for each column."""
        ...

    def fp8_values(self, codes: Array, table: Array, scale: Array, found: Array, scratch: Any) -> None:
        """Write what codes (uint8) mean. table: values of the 256 codes; scale: what spreads over [out, in]."""
        ...

    def fp8_deviation(self, weight: Array, codes: Array, table: Array, scale: Array, scratch: Any) -> Deviation: ...

    def deviation(self, weight: Array, values: Array, scratch: Any) -> Deviation: ...


@dataclass(frozen=True)
class Crew:
    """Threads that work with kernels."""

    kernels: Kernels
    threads: int

    def each(self, elements: int, work: Callable[[Part, Any], Answer]) -> list[Answer]:
        """The answers for all parts of so many elements, in their order."""

        def part(number: int, memory: Any) -> Answer:
            begin, end = number * PART, min((number + 1) * PART, elements)
            return work(
                Part(slice(begin, end), slice(begin // 2, end // 2), slice(begin // BLOCK, end // BLOCK)), memory
            )

        return self.numbered(-(-elements // PART), min(PART, elements), part)

    def numbered(self, parts: int, elements: int, work: Callable[[int, Any], Answer]) -> list[Answer]:
        """The answers for so many parts of at most so many elements each."""

        def quietly(part: int, memory: Any) -> Answer:
            with numpy.errstate(all="ignore"):
                return work(part, memory)

        return each_part(parts, self.threads, lambda: self.kernels.scratch(elements), quietly)
