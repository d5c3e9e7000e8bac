"""The verdict over pairs: how often it is wrong, and how often it finds what is there, with noise as of machines."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.observe.statistics import (
    DECIDE_AT,
    LEAST_PAIRS,
    PairedComparison,
    compare_pairs,
    log_ratio,
    looks,
)

RATIOS = st.lists(st.floats(-1, 1), min_size=LEAST_PAIRS, max_size=40)


def blocks_of_noise(random: np.random.Generator, number: int, kind: str) -> np.ndarray:
    """The logarithms of the times of so many blocks on one machine, one after the other."""
    steady = random.normal(0, 0.01, number)
    if kind == "steady":
        return steady
    if kind == "drift":  # it grows slower, by up to 10 %, and faster again
        return steady + 0.1 * np.sin(np.linspace(0, math.pi * random.uniform(0.5, 3), number)) * random.choice([-1, 1])
    if kind == "correlated":
        state, values = 0.0, []
        for each in random.normal(0, 0.02, number):
            state = 0.8 * state + each
            values.append(state)
        return np.asarray(values)
    if kind == "wanders":
        return np.cumsum(random.normal(0, 0.02, number))
    if kind == "tails":
        return 0.01 * random.standard_t(2, number)
    if kind == "spoilt":  # one block of ten shares the machine with something else
        return steady + (random.random(number) < 0.1) * random.uniform(0.1, 1.0, number)
    assert kind == "steps"  # clocks: two speeds, changed now and then
    return steady + 0.05 * (np.cumsum(random.random(number) < 0.1) % 2)


KINDS = ("steady", "drift", "correlated", "wanders", "tails", "spoilt", "steps")


def measured(
    random: np.random.Generator, pairs: int, kind: str, difference: float = 0.0, order: float = 0.0
) -> PairedComparison:
    """A comparison of `pairs` pairs. difference: of B from A; order: of the second block of a pair from the first."""
    noise = blocks_of_noise(random, 2 * pairs, kind).reshape(pairs, 2)
    noise[:, 1] += order
    a_first = np.arange(pairs) % 2 == 0
    ratios = np.where(a_first, noise[:, 1] - noise[:, 0], noise[:, 0] - noise[:, 1]) + difference
    return compare_pairs(ratios.tolist(), a_first.tolist(), differences=())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pairs", [8, 12, 20])
def test_a_server_compared_with_itself_shows_no_difference(kind: str, pairs: int) -> None:
    """One of a hundred shows one by chance; so many that 2 of 20 would come in less than 2 % of all twenties."""
    random = np.random.default_rng(10)
    rounds = 600
    wrong = sum(measured(random, pairs, kind, order=0.1).word != "no-difference" for _ in range(rounds))
    assert wrong / rounds <= 0.018


def test_nineteen_of_twenty() -> None:
    """The line of the specification itself, a hundred times, with every noise."""
    random = np.random.default_rng(11)
    twenties = 0
    for number in range(100):
        kind = KINDS[number % len(KINDS)]
        found = [measured(random, 10, kind, order=0.05).word for _ in range(20)]
        twenties += sum(word == "no-difference" for word in found) >= 19
    assert twenties >= 97


@pytest.mark.parametrize("kind", ["steady", "drift", "tails", "spoilt"])
def test_a_slow_down_of_five_percent_is_found(kind: str) -> None:
    random = np.random.default_rng(12)
    words = [measured(random, 12, kind, math.log(1.05), order=-0.2).word for _ in range(300)]
    assert "lower" not in words
    assert words.count("higher") / len(words) >= {"steady": 0.99, "drift": 0.9, "tails": 0.8, "spoilt": 0.4}[kind]


@pytest.mark.parametrize("kind", ["steady", "drift", "correlated", "tails"])
def test_the_interval_holds_the_difference(kind: str) -> None:
    random = np.random.default_rng(13)
    rounds = 500
    found = [measured(random, 16, kind, math.log(1.03), order=0.1) for _ in range(rounds)]
    held = sum(each.low <= 3.0 <= each.high for each in found)  # type: ignore[operator]
    assert held / rounds >= 0.93


def test_one_spoilt_pair_neither_makes_nor_hides_a_difference() -> None:
    random = np.random.default_rng(14)
    same = random.normal(0, 0.01, 12)
    same[5] = 3.0
    assert compare_pairs(same.tolist()).word == "no-difference"
    slower = random.normal(math.log(1.05), 0.01, 12)
    slower[4] = -3.0
    found = compare_pairs(slower.tolist())
    assert found.word == "higher" and found.percent == pytest.approx(5, abs=1)


def test_early_looks_keep_the_rate_of_errors() -> None:
    random = np.random.default_rng(15)
    wrong, rounds = 0, 400
    for _ in range(rounds):
        ratios = random.normal(0, 0.02, 20).tolist()
        wrong += any(
            compare_pairs(ratios[: look.pairs], decide_at=look.decide_at, differences=()).word != "no-difference"
            for look in looks(20)
        )
    assert wrong / rounds <= 0.018


@pytest.mark.parametrize("pairs", range(LEAST_PAIRS, 60))
def test_looks_share_one_error(pairs: int) -> None:
    planned = looks(pairs)
    assert sum(1 - each.decide_at for each in planned) == pytest.approx(1 - DECIDE_AT)
    assert planned[-1].pairs == pairs and all(LEAST_PAIRS <= each.pairs < pairs for each in planned[:-1])


def test_so_many_pairs_as_it_says_show_the_difference() -> None:
    random = np.random.default_rng(16)
    needed = dict(compare_pairs(random.normal(0, 0.03, 400).tolist()).needed)
    assert needed[5.0] is not None and needed[2.0] is not None and LEAST_PAIRS < needed[5.0] < needed[2.0]
    words = [
        compare_pairs(random.normal(math.log(1.02), 0.03, needed[2.0]).tolist(), differences=()).word
        for _ in range(400)
    ]
    assert words.count("higher") / 400 == pytest.approx(0.8, abs=0.08)


@given(RATIOS)
def test_swapping_a_and_b_turns_the_verdict_round(ratios: list[float]) -> None:
    one, other = compare_pairs(ratios), compare_pairs([-each for each in ratios])
    assert other.word == {"lower": "higher", "higher": "lower"}.get(one.word, one.word)
    assert math.log1p(one.percent / 100) == pytest.approx(-math.log1p(other.percent / 100), abs=1e-9)  # type: ignore[operator]
    assert one.p == pytest.approx(other.p)


@given(RATIOS)
def test_a_verdict_agrees_with_its_figures(ratios: list[float]) -> None:
    found = compare_pairs(ratios)
    assert found.low <= found.percent <= found.high  # type: ignore[operator]
    assert (found.word == "no-difference") == (found.p >= 1 - DECIDE_AT)  # type: ignore[operator]
    assert found.most_percent >= max(abs(found.low), abs(found.high)) - 1e-9  # type: ignore[operator, type-var, arg-type]


@given(RATIOS, st.floats(-0.5, 0.5))
def test_what_the_order_does_is_taken_out(ratios: list[float], order: float) -> None:
    ratios = ratios[: len(ratios) // 2 * 2]
    signs = [1 if number % 2 == 0 else -1 for number in range(len(ratios))]
    plain = compare_pairs(ratios)
    moved = compare_pairs([each + order * sign for each, sign in zip(ratios, signs, strict=True)])
    assert moved.percent == pytest.approx(plain.percent, abs=1e-6)
    assert moved.low == pytest.approx(plain.low, abs=1e-6)


def test_equal_values_are_equal() -> None:
    found = compare_pairs([0.0] * 8)
    assert (found.word, found.percent, found.most_percent) == ("no-difference", 0, 0)
    assert compare_pairs([0.1] * 8).word == "higher"


def test_too_few_pairs_have_no_verdict() -> None:
    found = compare_pairs([0.2] * (LEAST_PAIRS - 1))
    assert found.word == "undecided" and found.percent == pytest.approx(22.1, abs=0.1) and found.low is None
    assert compare_pairs([]).percent is None


def test_log_ratio_is_of_what_both_answered() -> None:
    assert log_ratio({0: 1.0, 1: 2.0, 2: 9.0}, {0: 2.0, 1: 4.0, 5: 1.0}) == pytest.approx(math.log(2))
    assert log_ratio({0: 1.0}, {1: 1.0}) is None
