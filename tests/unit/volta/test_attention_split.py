"""Attention of few rows to many keys: the kernels attention_split_*, on the host, next to float64.

How far fp16 may be off is in attention_reference.py. Where all keys count the same, or but one, results are known to
the last place.
"""

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
from tests.unit.volta.host_attention import PLAIN, SPLIT_KERNELS, HostAttention, Layout
from tests.unit.volta.host_kernels import ORDERS, Order
from tests.unit.volta.narrow_formats import same_bits

every_fragments = pytest.mark.parametrize("fragments", ["quad_pairs", "octets"])
every_kernel = pytest.mark.parametrize(("head_size", "rows"), SPLIT_KERNELS)
every_tile = pytest.mark.parametrize("rows", [8, 16])


@every_kernel
@every_fragments
def test_results_are_those_of_float64(attention: HostAttention, fragments: str, head_size: int, rows: int) -> None:
    """Decoding: ragged lengths in each of the layouts, on one thread block and on more than have work."""
    random = np.random.default_rng(head_size + rows)
    lengths = ((1, 128, 33), (300,), (129, 32, 31), (256, 1), (17, 480, 127))
    for number, of_requests in enumerate(lengths):
        group = GROUPS[(number + head_size // 16 + rows) % len(GROUPS)]
        requests = requests_of([(1, length) for length in of_requests])
        problem = rough(random, requests, 1 + number % 2, group, head_size)
        blocks = (1, 2, 40, 3, 5)[number]
        layout, order = LAYOUTS[number], ORDERS[number % len(ORDERS)]
        check(problem, attention.split(problem, fragments, rows, blocks, layout, order))


@every_kernel
@every_fragments
def test_each_row_gets_the_value_of_its_key_to_the_last_bit(
    attention: HostAttention, fragments: str, head_size: int, rows: int
) -> None:
    random = np.random.default_rng(rows)
    for number, group in enumerate((GROUPS[rows // 8], GROUPS[head_size % 7])):
        requests = requests_of([(1, 150), (2, 70), (1, 0), (1, 16)])
        problem, expected = selecting(random, requests, 2, group, head_size, window=64 * number)
        found = attention.split(problem, fragments, rows, 2 + number, LAYOUTS[number])
        check_values(problem, found, expected)


@every_kernel
@every_fragments
def test_the_order_of_threads_and_blocks_does_not_change_a_bit(
    attention: HostAttention, fragments: str, head_size: int, rows: int
) -> None:
    """Also where thread blocks share rows, so that another one is the last that arrives."""
    random = np.random.default_rng(head_size)
    problem = rough(random, requests_of([(1, 700), (1, 40), (2, 300)]), 2, 4, head_size)
    for blocks in (3, 11):
        first, *others = (attention.split(problem, fragments, rows, blocks, order=order) for order in ORDERS)
        check(problem, first)
        for other in others:
            same_bits(other, first)


@every_tile
@every_fragments
def test_several_tokens_of_a_request_see_each_their_keys(attention: HostAttention, fragments: str, rows: int) -> None:
    """Speculative decoding, in several tiles of rows; and a request that begins."""
    pairs = [(5, 5), (4, 131), (3, 256), (1, 97), (7, 40), (2, 2)]
    for group, blocks, layout in ((1, 1, LAYOUTS[1]), (3, 4, PLAIN), (8, 30, LAYOUTS[2]), (12, 7, LAYOUTS[3])):
        problem = counting(requests_of(pairs), 2, group, 64)
        check_counts(problem, attention.split(problem, fragments, rows, blocks, layout))


@every_tile
@every_fragments
def test_a_token_sees_no_key_before_its_window(attention: HostAttention, fragments: str, rows: int) -> None:
    """Blocks before the window are not a request's any more: their numbers and what is in them are arbitrary."""
    for number, window in enumerate(WINDOWS):
        pairs = [(1, 200), (5, 161), (1, 128), (2, 33), (3, 3), (1, window), (2, window + 1)]
        problem = counting(requests_of(pairs), 1, GROUPS[number % 4], 80, window)
        layout = LAYOUTS[number % len(LAYOUTS)]
        check_counts(problem, attention.split(problem, fragments, rows, 1 + number % 6, layout))


RANGED = (
    Request(3, 60, ((5, 30),)),
    Request(40, 70, ((31, 40), (50, 69))),
    Request(6, 130, ((0, 129),)),
    Request(20, 180, ((2, 150), (163, 170))),
    Request(4, 20, ((18, 40),)),  # reaches past what is there
    Request(9, 40, ((33, 33), (0, 0))),  # no ranges
    Request(2, 300),
)


@pytest.mark.parametrize("clamp", [False, True])
@every_tile
@every_fragments
def test_tokens_of_a_range_see_each_other(attention: HostAttention, fragments: str, rows: int, clamp: bool) -> None:
    for number, window in enumerate((0, 8, 33, 64, 128)):
        problem = counting(RANGED, 1, 1 + number % 3, 64, window, clamp)
        layout = LAYOUTS[number % len(LAYOUTS)]
        check_counts(problem, attention.split(problem, fragments, rows, 2 + number, layout))


@pytest.mark.parametrize("requests", [33, 70])
@every_fragments
def test_many_requests_and_those_that_are_none(attention: HostAttention, fragments: str, requests: int) -> None:
    """A batch that is padded, as graphs have it: with requests without tokens, at the end and between others."""
    random = np.random.default_rng(requests)
    chosen = [Request(1, int(length)) for length in random.integers(1, 40, requests)]
    for number in (0, 3, 4, 29, 32, requests - 2, requests - 1):
        chosen[number] = Request(number % 2, 0)
    problem = rough(random, chosen, 2, 3, 64)
    for blocks in (9, 60):
        check(problem, attention.split(problem, fragments, 8, blocks, order=ORDERS[2]))


@every_fragments
def test_more_blocks_than_may_work(attention: HostAttention, fragments: str) -> None:
    """1024 of them, however many are started; rows are merged in two steps."""
    requests = requests_of([(1, 9 * attention.unit)] * 120)
    problem = rough(np.random.default_rng(9), requests, 1, 1, 64)
    check(problem, attention.split(problem, fragments, 8, 1080, order=ORDERS[1]))


@every_fragments
def test_no_request_is_no_work(attention: HostAttention, fragments: str) -> None:
    problem = rough(np.random.default_rng(0), requests_of([(1, 0), (0, 0)]), 1, 2, 64)
    check(problem, attention.split(problem, fragments, 8, 3))


@every_fragments
def test_requests_share_blocks_of_a_common_prefix(attention: HostAttention, fragments: str) -> None:
    layout = Layout(32, seed=8, shared_blocks=3)
    requests = requests_of([(1, 140), (2, 130), (1, 97)])
    problem = rough(np.random.default_rng(1), requests, 2, 4, 128, shared_tokens=96)
    check(problem, attention.split(problem, fragments, 8, 4, layout))


@every_tile
@every_fragments
def test_a_long_context(attention: HostAttention, fragments: str, rows: int) -> None:
    problem = rough(np.random.default_rng(2), requests_of([(1, 6001), (1, 2000)]), 1, 8, 64)
    for blocks in (1, 23, 63, 200):
        check(problem, attention.split(problem, fragments, rows, blocks, LAYOUTS[3]))


@every_kernel
@every_fragments
def test_many_blocks_that_share_rows_merge_in_any_order_to_the_same_bits(
    attention: HostAttention, fragments: str, head_size: int, rows: int
) -> None:
    """So many that they do so in two steps; all have work, of this request or of the next."""
    unit = attention.unit
    problem = rough(np.random.default_rng(2), requests_of([(1, 8 * unit), (1, 10 * unit + 3)]), 1, 2, head_size)
    for blocks in (11, 19):
        first, other = (attention.split(problem, fragments, rows, blocks, order=order) for order in ORDERS[1:3])
        check(problem, first)
        same_bits(other, first)


@pytest.mark.parametrize("step", [-3.0, 0.7, 1.4, 2.8, 300.0])
@every_tile
@every_fragments
def test_logits_that_rise_or_fall_by_so_much_each_tile_do_not_overflow(
    attention: HostAttention, fragments: str, rows: int, step: float
) -> None:
    """By steps that move the reference of exponentials every time, at every second, at every third."""
    for blocks in (1, 3):
        problem = rising(np.random.default_rng(3), requests_of([(1, 800), (3, 260)]), 1, 4, 64, step)
        check(problem, attention.split(problem, fragments, rows, blocks))


@pytest.mark.parametrize("spread", [0.01, 8, 60])
@every_tile
@every_fragments
def test_small_and_large_logits(attention: HostAttention, fragments: str, rows: int, spread: float) -> None:
    problem = rough(np.random.default_rng(4), requests_of([(2, 300), (1, 90)]), 1, 6, 128, spread)
    check(problem, attention.split(problem, fragments, rows, 3))


@every_tile
@every_fragments
def test_what_models_add_to_logits(attention: HostAttention, fragments: str, rows: int) -> None:
    """Soft caps, ALiBi, sinks (also such that nothing else is left, or nothing of them), alone and together."""
    random = np.random.default_rng(5)
    requests = requests_of([(1, 260), (3, 70), (1, 1)])
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
        check(problem, attention.split(problem, fragments, rows, 1 + number, order=ORDERS[number % 4]))
    nothing = attention.split(problems[3], fragments, rows, 2)[:, 3]
    assert (nothing == 0).all()


@every_tile
@every_fragments
def test_errors_are_no_larger_than_rounding_exponentials_and_results_makes_them(
    attention: HostAttention, fragments: str, rows: int
) -> None:
    """Within 5 % of attention that rounds to fp16 at these two places only, in the mean over many numbers."""
    problem = rough(np.random.default_rng(6), requests_of([(1, 700), (1, 300)]), 2, 8, 128)
    check_mean_error(problem, attention.split(problem, fragments, rows, 5))


@every_tile
@every_fragments
def test_what_is_no_number_stays_in_its_row(attention: HostAttention, fragments: str, rows: int) -> None:
    problem = rough(np.random.default_rng(7), requests_of([(2, 300), (1, 40)]), 1, 4, 64)
    spoilt = problem.query.copy()
    spoilt[0, 1, 5] = np.nan
    spoilt[2, 3, 63] = np.nan
    disturbed = Attention(problem.requests, spoilt, problem.keys, problem.values, problem.scale)
    check_row_by_row(disturbed, attention.split(disturbed, fragments, rows, 3))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Attention, str, int, int, Layout, Order]:
    """A problem, fragments, rows of a tile, blocks, a layout and an order."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    requests = []
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(0, 400))
        queries = min(length, draw(st.integers(1, 5)))
        ends = [sorted((draw(st.integers(0, 420)), draw(st.integers(0, 420)))) for _ in range(draw(st.integers(0, 2)))]
        requests.append(Request(queries, length, tuple((first, last) for first, last in ends)))
    head_size, rows = draw(st.sampled_from(SPLIT_KERNELS))
    problem = rough(
        random,
        requests,
        draw(st.integers(1, 2)),
        draw(st.sampled_from(GROUPS)),
        head_size,
        draw(st.sampled_from([1, 10])),
        window=draw(st.sampled_from([0, 0, 20, 150])),
        soft_cap=draw(st.sampled_from([0, 0, 20])),
        clamp_ranges=draw(st.booleans()),
    )
    layout = Layout(16 * draw(st.integers(1, 5)), draw(st.integers(0, 9)), 0, 8 * draw(st.integers(0, 2)))
    order = Order(
        draw(st.none() | st.integers(0, 99)), draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 4))
    )
    return problem, draw(st.sampled_from(["quad_pairs", "octets"])), rows, draw(st.integers(1, 20)), layout, order


@settings(max_examples=60)
@given(case=cases())
def test_any_batch_on_any_number_of_blocks(
    attention: HostAttention, case: tuple[Attention, str, int, int, Layout, Order]
) -> None:
    problem, fragments, rows, blocks, layout, order = case
    check(problem, attention.split(problem, fragments, rows, blocks, layout, order))
