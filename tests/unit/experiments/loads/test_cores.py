"""Which cores the load is sent from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.experiments.loads.cores import as_ranges, choose_cores, from_ranges


def test_cores_that_the_server_does_not_use() -> None:
    found = choose_cores(range(8), range(6))
    assert found.cores == (6, 7)
    assert "6-7" in found.why


def test_two_of_many_where_the_server_may_run_on_all() -> None:
    assert choose_cores(range(32), range(32)).cores == (30, 31)
    assert choose_cores(range(32), ()).cores == (30, 31)


def test_no_pinning_on_a_small_machine_and_it_says_so() -> None:
    found = choose_cores(range(2), range(2))
    assert found.cores is None
    assert "2 cores that the server runs on" in found.why


@given(st.sets(st.integers(0, 500)))
def test_lists_of_cores_are_read_as_they_are_written(cores: set[int]) -> None:
    assert set(from_ranges(as_ranges(cores))) == cores


@pytest.mark.parametrize(("text", "cores"), [("0-3,8\n", (0, 1, 2, 3, 8)), ("", ()), ("5", (5,)), ("0,2-3", (0, 2, 3))])
def test_lists_of_the_kernel(text: str, cores: tuple[int, ...]) -> None:
    assert from_ranges(text) == cores
