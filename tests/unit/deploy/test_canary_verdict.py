"""When a canary may take over, and when it must go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.config.schema import Canary
from onecat.deploy.canary_verdict import Figures, Sample, Verdict, figures, judge, percentile, samples

NEW, OLD = "127.0.0.1:8001", "127.0.0.1:8000"
LIMITS = Canary(promote_after_seconds=600, least_requests=50, max_error_rate=0.02, max_p99_ratio=1.5)


def line(upstream: str, status: str, seconds: float = 1.0, time: str = "2026-11-30T02:00:10+00:00") -> str:
    return json.dumps(
        {"time": time, "seconds": seconds, "upstream": upstream, "upstream_status": status, "status": 200}
    )


def many(address: str, count: int, failed: int = 0, seconds: float = 1.0) -> list[Sample]:
    return [Sample(address, 100.0, number < failed, seconds) for number in range(count)]


def verdict(log: list[Sample], now: float = 700.0, alive: bool = True) -> Verdict:
    return judge(log, NEW, OLD, 50.0, now, alive, LIMITS)


def test_a_line_of_the_log_tells_server_time_and_outcome() -> None:
    assert samples([line(NEW, "200", 2.5)]) == (Sample(NEW, 1796004010.0, False, 2.5),)


@pytest.mark.parametrize(("status", "failed"), [("200", False), ("400", False), ("429", False), ("499", False),
                                                ("500", True), ("503", True), ("-", True)])  # fmt: skip
def test_only_the_servers_own_failures_count(status: str, failed: bool) -> None:
    assert [each.failed for each in samples([line(NEW, status)])] == [failed]


def test_a_request_that_was_tried_twice_counts_for_both_servers() -> None:
    found = samples([line(f"{NEW}, {OLD}", "502, 200")])
    assert [(each.address, each.failed) for each in found] == [(NEW, True), (OLD, False)]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"upstream": "-"}', line("", ""), '{"upstream": 5}'])
def test_what_says_nothing_about_a_server_is_left_out(text: str) -> None:
    assert samples([text]) == ()


def test_it_waits_for_its_time() -> None:
    found = verdict(many(NEW, 100) + many(OLD, 900), now=350.0)
    assert (found.word, found.why, found.seconds_left) == ("waiting", "300 s to go", 300.0)


def test_it_waits_for_enough_requests() -> None:
    assert verdict(many(NEW, 49)).why == "49 of at least 50 requests so far"


def test_it_holds_when_errors_and_latency_are_within_their_limits() -> None:
    found = verdict(many(NEW, 100, failed=2, seconds=1.4) + many(OLD, 900))
    assert found.word == "holds"
    assert found.canary == Figures(100, 2, 1.4)
    assert found.stable == Figures(900, 0, 1.0)


def test_too_many_errors_end_it_at_once() -> None:
    found = verdict(many(NEW, 50, failed=2), now=60.0)
    assert found.word == "broken"
    assert found.why == "2 of 50 answers are server errors (4.0%); allowed are 2.0%"


def test_one_error_among_few_requests_says_nothing_yet() -> None:
    assert verdict(many(NEW, 3, failed=1), now=60.0).word == "waiting"


def test_a_slower_one_does_not_take_over() -> None:
    found = verdict(many(NEW, 100, seconds=1.6) + many(OLD, 900))
    assert found.word == "broken"
    assert found.why == "its P99 is 1.60 s, 1.60 times that of the stable release; allowed is 1.5"


def test_without_answers_of_the_stable_release_latency_is_not_compared() -> None:
    assert verdict(many(NEW, 100, seconds=9.0)).word == "holds"


def test_a_dead_server_ends_it_whatever_the_log_says() -> None:
    assert verdict(many(NEW, 100), alive=False).word == "broken"


def test_requests_before_its_time_are_not_its() -> None:
    early = [Sample(NEW, 49.0, True, 1.0)] * 100
    assert verdict(early + many(NEW, 100)).canary.requests == 100


def test_the_percentile_is_the_nearest_rank() -> None:
    assert percentile([float(number) for number in range(1, 101)], 0.99) == 99.0
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([float(number) for number in range(1, 1001)], 0.99) == 990.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_the_percentile_is_a_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-9


@given(st.text())
def test_any_text_is_samples_or_nothing(text: str) -> None:
    assert isinstance(samples(text.splitlines()), tuple)


def test_no_samples_are_no_errors() -> None:
    assert figures([]) == Figures()
    assert figures([]).error_rate == 0.0
