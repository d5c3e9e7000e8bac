"""What blocks come to."""

from __future__ import annotations

import json

import pytest

from onecat.experiments.records import Objectives, Request
from onecat.experiments.summary import end_to_end_per_token, is_good, per_token, summarise
from tests.unit.experiments.simulated import block_of


def test_rates_are_of_answered_requests_by_the_time_of_all_blocks() -> None:
    blocks = [block_of({0: 2.0, 1: 2.0}, failed=1), block_of({0: 3.0, 1: 3.0}), block_of({0: 99.0}, warm_up=True)]
    found = summarise(blocks)
    assert (found.blocks, found.requests, found.answered, found.failed, found.errors) == (2, 5, 4, 1, {"timeout": 1})
    assert found.seconds == 10 and found.output_rate.value == 4 and found.requests_rate.value == 0.4
    assert found.input_rate.value == 40 and (found.input_tokens, found.output_tokens) == (400, 40)
    assert found.end_to_end.mean.value == 2.5 and found.end_to_end.n == 4
    assert found.ttft.p50.value == pytest.approx(0.5)
    assert found.per_token.n == 4 and found.inter_token.n == 36
    assert found.goodput is None and found.good_share is None
    json.dumps(found.document())


def test_two_blocks_that_differ_are_known_less_well_than_one_with_all_requests() -> None:
    near = {number: 1 + 0.001 * number for number in range(50)}
    far = {number: 2 + 0.001 * number for number in range(50)}
    apart = summarise([block_of(near), block_of(far)]).end_to_end.mean
    together = summarise([block_of({**near, **{50 + number: value for number, value in far.items()}})]).end_to_end.mean
    assert apart.value == pytest.approx(together.value)
    assert apart.high - apart.low > 10 * (together.high - together.low)  # type: ignore[operator]


def test_gaps_of_one_request_are_not_independent() -> None:
    found = summarise([block_of({0: 1.0, 1: 2.0, 2: 4.0})])
    assert found.inter_token.n == 27
    # Three requests: t with two degrees of freedom over three, and not 27, observations.
    assert found.inter_token.mean.high > 0.3  # type: ignore[operator]


def test_goodput_counts_requests_that_keep_all_objectives() -> None:
    found = summarise(
        [block_of({0: 1.0, 1: 2.0}, failed=2), block_of({0: 1.0, 1: 1.0})], Objectives(end_to_end_ms=1500)
    )
    assert found.good_share is not None and found.good_share.value == 0.5
    assert found.goodput is not None and found.goodput.value == 3 / 5
    assert summarise([block_of({0: 1.0})], Objectives()).goodput is None


def test_objectives() -> None:
    request = Request(0, 0.0, 10, 11, ttft=0.2, end_to_end=1.2)
    assert per_token(request) == pytest.approx(0.1) and end_to_end_per_token(request) == pytest.approx(1.2 / 11)
    assert is_good(request, Objectives(ttft_ms=200, inter_token_ms=100.1, end_to_end_ms=1200))
    assert not is_good(request, Objectives(ttft_ms=199))
    assert not is_good(request, Objectives(inter_token_ms=99))
    assert not is_good(request, Objectives(end_to_end_ms=1199))
    assert not is_good(Request(0, 0.0, 10, 0, None, 0.1, error="refused"), Objectives(end_to_end_ms=5000))
    single = Request(0, 0.0, 10, 1, ttft=0.2, end_to_end=0.2)
    assert per_token(single) is None and is_good(single, Objectives(inter_token_ms=1))
    assert not is_good(Request(0, 0.0, 10, 5, None, 1.0), Objectives(ttft_ms=1))
    assert not is_good(Request(0, 0.0, 10, 5, None, 1.0), Objectives(inter_token_ms=1000))


def test_nothing_was_answered() -> None:
    found = summarise([block_of({}, failed=3)])
    assert (found.requests, found.answered, found.ttft.n) == (3, 0, 0)
    assert summarise([]).requests == 0
