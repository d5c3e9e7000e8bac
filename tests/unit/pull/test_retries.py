"""When a failed request is tried again."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.pull.retries import RetryPolicy, retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=timezone.utc)


def test_waits_double_up_to_the_longest_and_differ_between_clients() -> None:
    policy = RetryPolicy(first_seconds=1, longest_seconds=8)
    assert [policy.delay(failures, None, 1.0) for failures in range(1, 7)] == [1, 2, 4, 8, 8, 8]
    assert policy.delay(3, None, 0.0) == 2


@given(st.integers(1, 10_000), st.none() | st.floats(0, 1e9), st.floats(0, 1))
def test_no_wait_is_negative_or_endless(failures: int, asked: float | None, chance: float) -> None:
    policy = RetryPolicy()
    assert 0 <= policy.delay(failures, asked, chance) <= policy.longest_asked + 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("Mon, 30 Nov 2026 12:00:20 GMT", 20.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, NOW) == seconds


def test_what_the_server_asks_for_counts_more_than_our_own_wait() -> None:
    assert RetryPolicy().delay(1, 20.0, 0.0) == 20.0


def test_who_says_when_to_come_back_is_asked_more_often_than_who_does_not() -> None:
    policy = RetryPolicy(attempts=4)
    assert (policy.most(None), policy.most(0.0), policy.most(60.0)) == (4, 12, 12)
    assert RetryPolicy(attempts=20).most(1.0) == 20
