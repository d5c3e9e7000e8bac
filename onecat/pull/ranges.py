"""Which bytes of a file are there: sets of byte ranges, and the pieces in which the rest is fetched. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Range = tuple[int, int]
"""Bytes from the first number up to, but not with, the second."""

SMALLEST_PIECE, LARGEST_PIECE = 8 * 2**20, 64 * 2**20
"""Bytes of one request: small enough that all connections end together, large enough that requests cost nothing."""


_MOST_DIGITS = 18
"""Of a number of bytes: 2**63 - 1, the longest that a file can be (lseek(2)), has one more."""


def byte_count(text: str) -> int | None:
    """A number of bytes as a header tells it; None for what is none, or more than a file can have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same bytes as ranges in order that neither touch nor overlap."""
    result: list[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return tuple(result)


def missing(ranges: Iterable[Range], size: int) -> tuple[Range, ...]:
    """What of a file of `size` bytes is in none of the ranges."""
    gaps, position = [], 0
    for start, end in merged(ranges):
        if position < start:
            gaps.append((position, min(start, size)))
        position = max(position, end)
    if position < size:
        gaps.append((position, size))
    return merged(gaps)


def length(ranges: Iterable[Range]) -> int:
    """Number of bytes in all ranges."""
    return sum(end - start for start, end in merged(ranges))


def prefix(ranges: Iterable[Range]) -> int:
    """How many bytes from the first on are there without a gap."""
    first = next(iter(merged(ranges)), (0, 0))
    return first[1] if first[0] == 0 else 0


def piece_size(size: int, connections: int) -> int:
    """Bytes of the pieces in which a file of `size` bytes is asked for over that many connections."""
    return max(SMALLEST_PIECE, min(LARGEST_PIECE, size // (connections * 4)))


def pieces(gaps: Sequence[Range], largest: int) -> Iterator[Range]:
    """The gaps cut into pieces of at most `largest` bytes, in order."""
    for start, end in gaps:
        for begin in range(start, end, largest):
            yield begin, min(begin + largest, end)
