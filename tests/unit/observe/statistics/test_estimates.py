"""Estimates hold the true value as often as they say, also where requests of a block resemble each other."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.observe.statistics import (
    Estimate,
    errors_by_kind,
    latencies,
    least_for_percentile,
    mean_interval,
    percentile,
    percentile_interval,
    ratio_interval,
    share_interval,
    slope_interval,
)

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=400)


def held(rounds: int, make: Callable[[np.random.Generator], Estimate], truth: float, seed: int = 1) -> float:
    """The share of intervals that hold the truth."""
    random = np.random.default_rng(seed)
    found = [make(random) for _ in range(rounds)]
    assert all(each.low is not None and each.high is not None for each in found)
    return sum(each.low <= truth <= each.high for each in found) / rounds  # type: ignore[operator]


class TestPercentiles:
    @given(VALUES, st.sampled_from([1, 25, 50, 90, 95, 99]))
    def test_interval_holds_its_estimate_and_is_seen(self, values: list[float], p: float) -> None:
        found = percentile_interval(values, p)
        assert found.value == percentile(values, p)
        if found.has_interval:
            assert found.low <= found.value <= found.high  # type: ignore[operator]
            assert min(values) <= found.low and found.high <= max(values)  # type: ignore[operator]
            assert not found.note
        else:
            assert "not enough requests" in found.note

    @given(VALUES, st.integers(2, 8))
    def test_blocks_never_make_it_narrower(self, values: list[float], blocks: int) -> None:
        simple = percentile_interval(values, 50)
        clustered = percentile_interval(values, 50, blocks=[number % blocks for number in range(len(values))])
        if clustered.has_interval:
            assert clustered.low <= simple.low and clustered.high >= simple.high  # type: ignore[operator]

    def test_says_how_many_requests_it_needs(self) -> None:
        # 1 - 0.99^n >= 0.975
        assert [least_for_percentile(p) for p in (50, 90, 95, 99)] == [6, 36, 72, 368]
        assert percentile_interval(list(range(100)), 99).note == (
            "not enough requests for a p99 interval: 100 of at least 368"
        )
        assert percentile_interval(list(range(368)), 99).has_interval
        assert not percentile_interval(list(range(367)), 99).has_interval

    @pytest.mark.parametrize("p", [50, 90, 99])
    def test_coverage_with_a_long_tail(self, p: float) -> None:
        truth = {50: 1.0, 90: math.exp(1.281552), 99: math.exp(2.326348)}[p]
        assert held(1000, lambda random: percentile_interval(random.lognormal(size=600), p), truth) >= 0.94

    def test_coverage_where_blocks_differ(self) -> None:
        """Of five repetitions with 200 requests each, as independent ones three of four intervals would be wrong."""
        blocks = np.repeat(np.arange(5), 200)

        def values(random: np.random.Generator) -> np.ndarray:
            return random.normal(0, 0.3, 5)[blocks] + random.normal(0, 0.5, 1000)

        # The median of the mixture is 0 by symmetry.
        assert held(600, lambda random: percentile_interval(values(random), 50, blocks=blocks.tolist()), 0) >= 0.92
        assert held(600, lambda random: percentile_interval(values(random), 50), 0) < 0.5

    def test_repetitions_that_differ_too_much_have_none(self) -> None:
        values = [1.0] * 500 + [2.0] * 500 + [3.0] * 500
        found = percentile_interval(values, 99, blocks=[0] * 500 + [1] * 500 + [2] * 500)
        assert not found.has_interval and "in 3 repetitions" in found.note

    @pytest.mark.parametrize("blocks", [3, 4])
    @pytest.mark.parametrize("p", [50, 90])
    def test_coverage_of_few_blocks(self, p: float, blocks: int) -> None:
        """Of those told. Blocks differ by a fifth of the spread in them; of two, 86 % would hold the P90."""
        truth = NormalDist(0, math.hypot(0.1, 0.5)).inv_cdf(p / 100)
        places = np.repeat(np.arange(blocks), 200)
        random, held_by = np.random.default_rng(3), []
        for _ in range(600):
            values = random.normal(0, 0.1, blocks)[places] + random.normal(0, 0.5, len(places))
            found = percentile_interval(values.tolist(), p, blocks=places.tolist())
            if found.low is not None and found.high is not None:
                held_by.append(found.low <= truth <= found.high)
        assert len(held_by) > 200 and sum(held_by) / len(held_by) >= 0.925

    def test_two_blocks_are_too_few(self) -> None:
        found = percentile_interval([1.0, 2.0] * 200, 50, blocks=[0, 1] * 200)
        assert found.value == 1.5 and not found.has_interval
        assert found.note == "not enough repetitions for a p50 interval: 2 of at least 3"

    def test_nothing(self) -> None:
        assert percentile([], 50) is None
        assert percentile_interval([], 99) == Estimate(None, note="nothing was measured")
        with pytest.raises(ValueError, match="between 0 and 100"):
            percentile_interval([1.0], 100)


class TestMeans:
    def test_is_that_of_the_textbook(self) -> None:
        # Mean 5, standard deviation 1, n 4: half width 3.182 * 1 / 2.
        values = [5 - 1.5**0.5, 5.0, 5.0, 5 + 1.5**0.5]
        found = mean_interval(values)
        assert found.value == pytest.approx(5)
        assert found.high == pytest.approx(5 + 3.18245 / 2, abs=1e-4)

    def test_coverage_where_blocks_differ(self) -> None:
        blocks = np.repeat(np.arange(5), 100)

        def values(random: np.random.Generator) -> np.ndarray:
            return random.normal(10, 1, 5)[blocks] + random.normal(0, 1, 500)

        assert held(1500, lambda random: mean_interval(values(random), blocks.tolist()), 10) == pytest.approx(
            0.95, abs=0.02
        )
        assert held(500, lambda random: mean_interval(values(random)), 10) < 0.4

    def test_one_block_is_as_none(self) -> None:
        assert mean_interval([1, 2, 4], [7, 7, 7]) == mean_interval([1, 2, 4])

    def test_one_value_has_no_interval(self) -> None:
        found = mean_interval([3.0])
        assert found.value == 3 and not found.has_interval and found.note

    def test_each_value_has_its_block(self) -> None:
        with pytest.raises(ValueError, match="2 values, 3 blocks"):
            mean_interval([1.0, 2.0], [1, 2, 3])


class TestCounts:
    @given(st.lists(st.booleans(), min_size=1, max_size=200))
    def test_a_share_is_one(self, good: list[bool]) -> None:
        found = share_interval(good)
        assert 0 <= found.low <= found.value <= found.high <= 1  # type: ignore[operator]
        assert found.high > found.low  # type: ignore[operator]  # even of all or none

    def test_share_is_wilsons(self) -> None:
        # https://www.itl.nist.gov/div898/handbook/prc/section2/prc241.htm: 4 of 20
        found = share_interval([True] * 4 + [False] * 16)
        assert (found.low, found.high) == (pytest.approx(0.0807, abs=1e-4), pytest.approx(0.4160, abs=1e-4))

    def test_share_of_blocks_that_differ_is_known_less_well(self) -> None:
        good = [True] * 90 + [False] * 10 + [True] * 50 + [False] * 50
        simple, clustered = share_interval(good), share_interval(good, [0] * 100 + [1] * 100)
        assert clustered.low < simple.low and clustered.high > simple.high  # type: ignore[operator]

    def test_rate_coverage(self) -> None:
        def rate(random: np.random.Generator) -> Estimate:
            seconds = random.uniform(8, 12, 6)
            return ratio_interval((seconds * random.normal(100, 5, 6)).tolist(), seconds.tolist())

        assert held(2000, rate, 100) == pytest.approx(0.95, abs=0.025)

    def test_rate_of_one_block(self) -> None:
        found = ratio_interval([30], [10])
        assert found.value == 3 and not found.has_interval

    def test_errors(self) -> None:
        kinds = [None, "timeout", None, "refused", "timeout"]
        assert list(errors_by_kind(kinds).items()) == [("timeout", 2), ("refused", 1)]


class TestSlopes:
    @pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
    def test_no_growth_is_found_where_readings_resemble_each_other(self, correlation: float) -> None:
        def slope(random: np.random.Generator) -> Estimate:
            noise, state = [], 0.0
            for each in random.normal(size=600):
                state = correlation * state + each
                noise.append(100 + state)
            return slope_interval(list(range(600)), noise)

        assert held(400, slope, 0) >= 0.92

    def test_growth_is_found(self) -> None:
        random = np.random.default_rng(2)
        times = np.arange(0, 3600, 10.0)
        found = slope_interval(times.tolist(), (500 + 0.01 * times + random.normal(0, 2, len(times))).tolist())
        assert found.low is not None and 0.009 < found.low < 0.01 < found.high < 0.011  # type: ignore[operator]

    def test_a_line_has_its_slope(self) -> None:
        found = slope_interval([0, 1, 2, 3, 4], [1, 3, 5, 7, 9])
        assert found.value == pytest.approx(2) and found.low == pytest.approx(2)

    @pytest.mark.parametrize("times", [[], [1.0], [1.0, 1.0]])
    def test_too_little(self, times: list[float]) -> None:
        found = slope_interval(times, times)
        assert found.value is None and found.note
        assert not slope_interval([0, 1, 2], [5, 6, 7]).has_interval


class TestLatencies:
    def test_in_other_units(self) -> None:
        values = [0.1 * number for number in range(1, 101)]
        found = latencies(values).scaled(1000)
        assert found.n == 100 and found.p50.value == pytest.approx(5050)
        assert found.most == pytest.approx(10_000)
        assert found.p99.note.startswith("not enough requests")

    def test_no_time_is_less_than_none(self) -> None:
        """Two repetitions, one ten times as slow: t with one degree of freedom is 12.7."""
        values, blocks = [0.1] * 20 + [1.0] * 20, [0] * 20 + [1] * 20
        assert mean_interval(values, blocks).low < 0  # type: ignore[operator]
        found = latencies(values, blocks).mean
        assert (found.low, found.high) == (0.0, mean_interval(values, blocks).high)
        assert latencies(values[:30], [0, 1, 2] * 10).mean == mean_interval(values[:30], [0, 1, 2] * 10)

    def test_of_nothing(self) -> None:
        found = latencies([])
        assert (found.n, found.mean.value, found.least, found.most) == (0, None, None, None)
        assert found.scaled(1000) == found
