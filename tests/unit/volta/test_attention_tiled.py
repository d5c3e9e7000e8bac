"""Attention of many rows: the kernels attention_tiled_*, on the host, next to float64 (as test_attention_split.py)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.volta.attention_checks import (
    GROUPS,
    LAYOUTS,
    WINDOWS,
    check,
    check_counts,
    check_mean_error,
    check_row_by_row,
    check_values,
)
from tests.unit.volta.attention_problems import counting, requests_of, rising, rough, selecting
from tests.unit.volta.attention_reference import Attention, Request
from tests.unit.volta.host_attention import TILED_KERNELS, HostAttention, Layout
from tests.unit.volta.host_kernels import ORDERS, Order
from tests.unit.volta.narrow_formats import same_bits

every_fragments = pytest.mark.parametrize("fragments", ["quad_pairs", "octets"])
every_head_size = pytest.mark.parametrize("head_size", TILED_KERNELS)


@every_head_size
@every_fragments
def test_results_are_those_of_float64(attention: HostAttention, fragments: str, head_size: int) -> None:
    """Prompts as a whole, after a prefix, in chunks, next to requests that decode, in each of the layouts."""
    random = np.random.default_rng(head_size)
    batches = (
        [(70, 70)],
        [(40, 100), (1, 65), (33, 33)],
        [(1, 1), (17, 300)],
        [(64, 128), (5, 0), (0, 0), (32, 96)],
        [(2, 97), (129, 129)],
    )
    for number, pairs in enumerate(batches):
        group = GROUPS[(number + head_size // 16) % len(GROUPS)]
        problem = rough(random, requests_of(pairs), 1 + number % 2, group if group < 8 or number else 2, head_size)
        order = ORDERS[number % len(ORDERS)]
        check(problem, attention.tiled(problem, fragments, LAYOUTS[number], order, more_blocks=number % 3))


@every_head_size
@every_fragments
def test_each_row_gets_the_value_of_its_key_to_the_last_bit(
    attention: HostAttention, fragments: str, head_size: int
) -> None:
    random = np.random.default_rng(1)
    for number, group in enumerate((1, 3)):
        requests = requests_of([(50, 150), (2, 70), (100, 100), (0, 0)])
        problem, expected = selecting(random, requests, 2, group, head_size, window=40 * number)
        check_values(problem, attention.tiled(problem, fragments, LAYOUTS[number]), expected)


@every_head_size
@every_fragments
def test_the_order_of_threads_and_blocks_does_not_change_a_bit(
    attention: HostAttention, fragments: str, head_size: int
) -> None:
    random = np.random.default_rng(head_size)
    problem = rough(random, requests_of([(90, 90), (60, 150)]), 2, 4, head_size)
    first, *others = (attention.tiled(problem, fragments, order=order) for order in ORDERS)
    check(problem, first)
    for other in others:
        same_bits(other, first)


@every_head_size
@every_fragments
def test_blocks_that_share_keys_have_the_result_together(
    attention: HostAttention, fragments: str, head_size: int
) -> None:
    """More of them than some requests have keys for; the last that arrives merges, whichever it is."""
    random = np.random.default_rng(head_size)
    least = 32 * attention.library.least_tiles_of_part()
    requests = requests_of([(3, 3 * least + 40), (1, 2 * least), (5, 2 * least - 31), (9, 0), (2, 20)])
    problem = rough(random, requests, 2, 2, head_size)
    for parts in (2, 3, 16):
        first, other = (attention.tiled(problem, fragments, order=order, parts=parts) for order in ORDERS[1:3])
        check(problem, first)
        same_bits(other, first)


@every_fragments
def test_blocks_that_share_keys_see_windows_ranges_and_sinks(attention: HostAttention, fragments: str) -> None:
    random = np.random.default_rng(5)
    sinks = np.array([0, 3, -3, 1e4], np.float32)
    ranged = (Request(40, 700, ((100, 690),)), Request(4, 600))
    for window in (0, 1, 33, 300, 515):
        for clamp in (False, True):
            problem = rough(random, ranged, 1, 4, 64, 3, 0, window, 30, clamp, sinks)
            check(problem, attention.tiled(problem, fragments, LAYOUTS[2], parts=3))


@every_fragments
def test_chunks_of_a_prompt_are_the_same_as_the_whole(attention: HostAttention, fragments: str) -> None:
    """Within fp16: the same keys come in the same order, but at other places of the tiles of rows."""
    whole = rough(np.random.default_rng(2), [Request(200, 200)], 1, 2, 64)
    for first, end in ((0, 33), (33, 97), (97, 200)):
        chunk = Attention(
            (Request(end - first, end),),
            whole.query[first:end],
            (whole.keys[0][:end],),
            (whole.values[0][:end],),
            whole.scale,
        )
        check(chunk, attention.tiled(chunk, fragments, Layout(32, before=first)))


@every_fragments
def test_tokens_before_the_requests_are_left_alone(attention: HostAttention, fragments: str) -> None:
    """As those of requests that decode, which split attention has."""
    problem = rough(np.random.default_rng(3), requests_of([(20, 33), (9, 9)]), 2, 3, 80)
    for before in (1, 7, 64):
        check(problem, attention.tiled(problem, fragments, Layout(48, gap=8, before=before)))


@every_fragments
def test_a_token_sees_no_key_before_its_window(attention: HostAttention, fragments: str) -> None:
    for number, window in enumerate(WINDOWS):
        pairs = [(150, 200), (33, 161), (1, 128), (3, 3), (40, 40 + window)]
        problem = counting(requests_of(pairs), 1, 1 + number % 3, 80, window)
        check_counts(problem, attention.tiled(problem, fragments, LAYOUTS[number % len(LAYOUTS)]))


RANGED = (
    Request(60, 60, ((5, 30),)),
    Request(40, 70, ((31, 40), (50, 69))),
    Request(100, 130, ((0, 129),)),
    Request(90, 180, ((2, 150), (163, 170))),
    Request(20, 20, ((18, 40),)),  # reaches past what is there
    Request(9, 40, ((33, 33), (0, 0))),  # no ranges
    Request(2, 300),
)


@pytest.mark.parametrize("clamp", [False, True])
@every_fragments
def test_tokens_of_a_range_see_each_other(attention: HostAttention, fragments: str, clamp: bool) -> None:
    for number, window in enumerate((0, 8, 33, 64, 128)):
        problem = counting(RANGED, 1, 1 + number % 3, 64, window, clamp)
        check_counts(problem, attention.tiled(problem, fragments, LAYOUTS[number % len(LAYOUTS)]))


@every_fragments
def test_rows_of_several_tiles(attention: HostAttention, fragments: str) -> None:
    """More rows than a thread block has, and one more or less than fill it."""
    full = attention.library.tiled_rows(64)
    for tokens, group in ((full // 4, 4), (full // 4 + 1, 4), (full // 3, 3), (full, 1), (full - 1, 1), (full // 2, 8)):
        problem = counting(requests_of([(tokens, tokens + 50), (tokens, tokens)]), 1, group, 64)
        check_counts(problem, attention.tiled(problem, fragments))


@pytest.mark.parametrize("requests", [33, 70])
@every_fragments
def test_many_requests_and_those_that_are_none(attention: HostAttention, fragments: str, requests: int) -> None:
    random = np.random.default_rng(requests)
    chosen = []
    for length in random.integers(1, 40, requests):
        chosen.append(Request(int(random.integers(1, length + 1)), int(length)))
    for number in (0, 3, 4, 29, 32, requests - 2, requests - 1):
        chosen[number] = Request(number % 2, 0)
    check(problem := rough(random, chosen, 1, 2, 64), attention.tiled(problem, fragments, order=ORDERS[2]))


@every_fragments
def test_no_request_is_no_work(attention: HostAttention, fragments: str) -> None:
    problem = rough(np.random.default_rng(0), requests_of([(1, 0), (0, 0)]), 1, 2, 64)
    check(problem, attention.tiled(problem, fragments))


@every_fragments
def test_requests_share_blocks_of_a_common_prefix(attention: HostAttention, fragments: str) -> None:
    layout = Layout(32, seed=8, shared_blocks=3)
    requests = requests_of([(40, 140), (30, 130), (1, 97)])
    problem = rough(np.random.default_rng(1), requests, 2, 4, 128, shared_tokens=96)
    check(problem, attention.tiled(problem, fragments, layout))


@pytest.mark.parametrize("step", [-3.0, 0.7, 1.4, 2.8, 300.0])
@every_fragments
def test_logits_that_rise_or_fall_by_so_much_each_tile_do_not_overflow(
    attention: HostAttention, fragments: str, step: float
) -> None:
    problem = rising(np.random.default_rng(3), requests_of([(20, 520), (130, 130)]), 1, 2, 64, step)
    check(problem, attention.tiled(problem, fragments))


@pytest.mark.parametrize("spread", [0.01, 8, 60])
@every_fragments
def test_small_and_large_logits(attention: HostAttention, fragments: str, spread: float) -> None:
    problem = rough(np.random.default_rng(4), requests_of([(30, 300), (90, 90)]), 1, 3, 128, spread)
    check(problem, attention.tiled(problem, fragments))


@every_fragments
def test_what_models_add_to_logits(attention: HostAttention, fragments: str) -> None:
    random = np.random.default_rng(5)
    requests = requests_of([(30, 160), (70, 70), (1, 1)])
    slopes = (2.0 ** -np.arange(1, 7)).astype(np.float32)
    sinks = np.array([0, 3, -3, 1e4, -1e4, -np.inf], np.float32)
    problems = (
        rough(random, requests, 2, 4, 64, spread=20, soft_cap=30),
        rough(random, requests, 2, 4, 80, spread=3, soft_cap=0.5, window=50),
        rough(random, requests, 2, 3, 64, slopes=slopes),
        rough(random, requests, 2, 3, 96, sinks=sinks),
        rough(random, requests, 2, 3, 64, spread=5, soft_cap=20, slopes=slopes, window=100),
        rough(random, requests, 2, 3, 64, spread=5, soft_cap=20, sinks=sinks, window=33),
    )
    for number, problem in enumerate(problems):
        check(problem, attention.tiled(problem, fragments, order=ORDERS[number % 4]))


@every_fragments
def test_errors_are_no_larger_than_rounding_exponentials_and_results_makes_them(
    attention: HostAttention, fragments: str
) -> None:
    problem = rough(np.random.default_rng(6), requests_of([(50, 300), (90, 90)]), 2, 4, 128)
    check_mean_error(problem, attention.tiled(problem, fragments))


@every_fragments
def test_what_is_no_number_stays_in_its_row(attention: HostAttention, fragments: str) -> None:
    problem = rough(np.random.default_rng(7), requests_of([(40, 100), (40, 40)]), 1, 4, 64)
    spoilt = problem.query.copy()
    spoilt[0, 1, 5] = np.nan
    spoilt[42, 3, 63] = np.nan
    disturbed = Attention(problem.requests, spoilt, problem.keys, problem.values, problem.scale)
    check_row_by_row(disturbed, attention.tiled(disturbed, fragments))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Attention, str, Layout, Order]:
    """A problem, fragments, a layout and an order."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    requests = []
    for _ in range(draw(st.integers(1, 3))):
        length = draw(st.integers(0, 250))
        queries = min(length, draw(st.integers(1, 90)))
        ends = [sorted((draw(st.integers(0, 270)), draw(st.integers(0, 270)))) for _ in range(draw(st.integers(0, 2)))]
        requests.append(Request(queries, length, tuple((first, last) for first, last in ends)))
    problem = rough(
        random,
        requests,
        draw(st.integers(1, 2)),
        draw(st.sampled_from([1, 2, 3, 5, 8])),
        draw(st.sampled_from(TILED_KERNELS)),
        draw(st.sampled_from([1, 10])),
        window=draw(st.sampled_from([0, 0, 20, 150])),
        soft_cap=draw(st.sampled_from([0, 0, 20])),
        clamp_ranges=draw(st.booleans()),
    )
    layout = Layout(
        16 * draw(st.integers(1, 5)),
        draw(st.integers(0, 9)),
        0,
        8 * draw(st.integers(0, 2)),
        before=draw(st.integers(0, 9)),
    )
    seed = draw(st.none() | st.integers(0, 99))
    order = Order(seed, draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 4)))
    return problem, draw(st.sampled_from(["quad_pairs", "octets"])), layout, order


@settings(max_examples=60)
@given(case=cases())
def test_any_batch(attention: HostAttention, case: tuple[Attention, str, Layout, Order]) -> None:
    problem, fragments, layout, order = case
    check(problem, attention.tiled(problem, fragments, layout, order))
