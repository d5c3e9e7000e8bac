"""Rates and latencies between scrapes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.observe.metrics import EngineMetrics, EngineSeries, Histogram, engine_rates
from onecat.observe.metrics.rates import quantile


def engine(name: str = "0", started: float | None = 100.0, **values: object) -> EngineMetrics:
    return EngineMetrics((EngineSeries("m", name, **values),), started)  # type: ignore[arg-type]


def test_counters_become_rates_and_histograms_latencies_of_that_time_alone() -> None:
    before = engine(generation_tokens=1000.0, preemptions=2.0, ttft=Histogram((1.0, 2.0), (50.0, 100.0), 100.0, 99.0))
    after = engine(generation_tokens=1500.0, preemptions=5.0, ttft=Histogram((1.0, 2.0), (50.0, 104.0), 104.0, 105.0))
    rates = engine_rates([(10.0, before), (20.0, after)])
    assert rates is not None
    assert (rates.seconds, rates.generation_tokens, rates.preemptions, rates.restarts) == (10.0, 50.0, 3.0, 0)
    assert (rates.prompt_tokens, rates.requests, rates.inter_token) == (None, None, None)
    assert rates.ttft is not None
    # Four observations, all between 1 and 2 s: what was before does not count.
    assert (rates.ttft.count, rates.ttft.mean, rates.ttft.p50) == (4.0, 1.5, 1.5)


def test_there_is_no_rate_without_two_scrapes_and_time_between_them() -> None:
    one = engine(generation_tokens=1.0)
    assert engine_rates([]) is None and engine_rates([(1.0, one)]) is None
    assert engine_rates([(1.0, one), (1.0, one)]) is None


def test_a_counter_that_began_anew_counts_from_zero() -> None:
    rates = engine_rates([(0.0, engine(started=None, requests=90.0)), (10.0, engine(started=None, requests=30.0))])
    assert rates is not None and (rates.requests, rates.restarts) == (3.0, 1)


def test_another_process_counts_from_zero_even_when_it_has_counted_further() -> None:
    scrapes = [
        (0.0, engine(started=100.0, requests=10.0)),
        (5.0, engine(started=100.0, requests=20.0)),
        (10.0, engine(started=103.0, requests=40.0)),
    ]
    rates = engine_rates(scrapes)
    assert rates is not None and (rates.requests, rates.restarts) == ((10 + 40) / 10, 1)


def test_a_histogram_that_began_anew_is_taken_whole() -> None:
    before = engine(started=None, queue=Histogram((1.0,), (9.0,), 9.0, 4.0))
    after = engine(started=None, queue=Histogram((1.0,), (2.0,), 2.0, 1.0))
    rates = engine_rates([(0.0, before), (1.0, after)])
    assert rates is not None and rates.queue is not None and (rates.queue.count, rates.queue.mean) == (2.0, 0.5)


def test_engines_are_added_up_and_one_that_was_not_told_of_before_does_not_jump() -> None:
    def both(first: float, second: float | None) -> EngineMetrics:
        series = [EngineSeries("m", "0", generation_tokens=first)]
        if second is not None:
            series.append(EngineSeries("m", "1", generation_tokens=second))
        return EngineMetrics(tuple(series), 100.0)

    rates = engine_rates([(0.0, both(10, None)), (1.0, both(20, 5000)), (2.0, both(30, 5040))])
    assert rates is not None and rates.generation_tokens == (20 + 40) / 2
    # A server that told of no engine was still starting: then all that they have done is new.
    rates = engine_rates([(0.0, EngineMetrics()), (1.0, both(20, 40))])
    assert rates is not None and rates.generation_tokens == 60.0


def test_hits_and_accepted_drafts_are_shares_of_this_time() -> None:
    before = engine(prefix_queries=100.0, prefix_hits=0.0, drafts=10.0, draft_tokens=50.0, accepted_tokens=5.0)
    after = engine(prefix_queries=300.0, prefix_hits=150.0, drafts=20.0, draft_tokens=100.0, accepted_tokens=35.0)
    rates = engine_rates([(0.0, before), (1.0, after)])
    assert rates is not None
    assert (rates.prefix_hit_rate, rates.draft_acceptance, rates.acceptance_length) == (0.75, 0.6, 4.0)
    # Looked up and nothing found is 0; nothing looked up is not known.
    none = engine_rates([(0.0, before), (1.0, replace(before))])
    assert none is not None and (none.prefix_hit_rate, none.draft_acceptance) == (None, None)
    missed = engine(prefix_queries=300.0, prefix_hits=0.0)
    zero = engine_rates([(0.0, before), (1.0, missed)])
    assert zero is not None and zero.prefix_hit_rate == 0.0


def test_what_engines_before_v1_say_themselves_is_taken_but_not_their_minus_one() -> None:
    told = engine(prefix_hit_rate=0.4)
    rates = engine_rates([(0.0, told), (1.0, told)])
    assert rates is not None and rates.prefix_hit_rate == 0.4
    nothing = engine(prefix_hit_rate=-1.0)
    rates = engine_rates([(0.0, nothing), (1.0, nothing)])
    assert rates is not None and rates.prefix_hit_rate is None


@pytest.mark.parametrize(
    ("share", "expected"),
    # By Prometheus' histogram_quantile: interpolated in the bucket; beyond the last bound that bound.
    [(0.5, 1.5), (0.25, 0.5 + 0.5 * 0.5), (0.9, 4.0), (1.0, 4.0), (0.1, 0.2)],
)
def test_quantiles_are_those_of_prometheus(share: float, expected: float) -> None:
    histogram = Histogram((0.2, 0.5, 1.0, 2.0, 4.0), (2.0, 4.0, 6.0, 14.0, 17.0), 20.0, 0.0)
    assert quantile(histogram, share) == pytest.approx(expected)


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=12), st.data())
def test_rates_of_parts_add_up_to_the_rate_of_the_whole(values: list[int], data: st.DataObject) -> None:
    scrapes = [(float(index), engine(started=None, requests=float(value))) for index, value in enumerate(values)]
    whole = engine_rates(scrapes)
    assert whole is not None and whole.requests is not None and whole.requests >= 0
    if len(scrapes) > 2:
        cut = data.draw(st.integers(1, len(scrapes) - 2))
        parts = [engine_rates(scrapes[: cut + 1]), engine_rates(scrapes[cut:])]
        assert sum(each.requests * each.seconds for each in parts if each and each.requests) == pytest.approx(
            whole.requests * whole.seconds
        )
