"""Which bytes are there, and the pieces in which the rest is asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onecat.pull.ranges import LARGEST_PIECE, SMALLEST_PIECE, length, merged, missing, piece_size, pieces, prefix

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


def as_set(ranges: object) -> set[int]:
    return {byte for start, end in ranges for byte in range(start, end)}  # type: ignore[attr-defined]


@given(RANGES)
def test_merged_ranges_hold_the_same_bytes_in_order_and_apart(ranges: list[tuple[int, int]]) -> None:
    found = merged(ranges)
    assert as_set(found) == as_set(ranges)
    assert all(first[1] < second[0] for first, second in zip(found, found[1:], strict=False))
    assert length(ranges) == len(as_set(ranges))


@given(RANGES, st.integers(0, 70))
def test_what_is_missing_is_all_that_is_not_there(ranges: list[tuple[int, int]], size: int) -> None:
    assert as_set(missing(ranges, size)) == set(range(size)) - as_set(ranges)


@given(RANGES)
def test_the_prefix_ends_at_the_first_gap(ranges: list[tuple[int, int]]) -> None:
    there = as_set(ranges)
    assert prefix(ranges) == next(byte for byte in range(100) if byte not in there)


@given(RANGES, st.integers(1, 20))
def test_pieces_cover_the_gaps_once_and_are_never_too_long(ranges: list[tuple[int, int]], largest: int) -> None:
    gaps = missing(ranges, 64)
    found = list(pieces(gaps, largest))
    assert as_set(found) == as_set(gaps) and sum(end - start for start, end in found) == length(gaps)
    assert all(0 < end - start <= largest for start, end in found)


def test_pieces_are_small_for_small_files_and_bounded_for_large_ones() -> None:
    assert piece_size(10 * 2**20, 8) == SMALLEST_PIECE
    assert piece_size(2**30, 8) == 32 * 2**20
    assert piece_size(2**40, 8) == LARGEST_PIECE
