"""Student's t against tables."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.observe.statistics import t_probability, t_quantile

# https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm
TABLE = {
    1: {0.90: 3.078, 0.95: 6.314, 0.975: 12.706, 0.99: 31.821, 0.995: 63.657, 0.999: 318.309},
    2: {0.90: 1.886, 0.95: 2.920, 0.975: 4.303, 0.99: 6.965, 0.995: 9.925, 0.999: 22.327},
    5: {0.90: 1.476, 0.95: 2.015, 0.975: 2.571, 0.99: 3.365, 0.995: 4.032, 0.999: 5.893},
    9: {0.90: 1.383, 0.95: 1.833, 0.975: 2.262, 0.99: 2.821, 0.995: 3.250, 0.999: 4.297},
    30: {0.90: 1.310, 0.95: 1.697, 0.975: 2.042, 0.99: 2.457, 0.995: 2.750, 0.999: 3.385},
    100: {0.90: 1.290, 0.95: 1.660, 0.975: 1.984, 0.99: 2.364, 0.995: 2.626, 0.999: 3.174},
    math.inf: {0.90: 1.282, 0.95: 1.645, 0.975: 1.960, 0.99: 2.326, 0.995: 2.576, 0.999: 3.090},
}


@pytest.mark.parametrize("degrees", TABLE)
def test_quantiles_are_those_of_the_table(degrees: float) -> None:
    for probability, value in TABLE[degrees].items():
        assert t_quantile(probability, degrees) == pytest.approx(value, abs=6e-4)
        assert t_quantile(1 - probability, degrees) == pytest.approx(-value, abs=6e-4)


@pytest.mark.parametrize("t", [-40.0, -3.0, -0.2, 0.0, 0.7, 5.0, 1e4])
def test_one_and_two_degrees_have_closed_forms(t: float) -> None:
    assert t_probability(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, rel=1e-9)
    assert t_probability(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), rel=1e-9, abs=1e-12)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0.5, 1e6))
def test_quantile_undoes_probability(probability: float, degrees: float) -> None:
    assert t_probability(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-9)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(0.5, 1e5))
def test_probability_rises_and_is_symmetric(one: float, other: float, degrees: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= t_probability(low, degrees) <= t_probability(high, degrees) + 1e-12 <= 1 + 2e-12
    assert t_probability(-one, degrees) == pytest.approx(1 - t_probability(one, degrees), abs=1e-12)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_no_quantile_of_what_is_no_probability(probability: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        t_quantile(probability, 5)
