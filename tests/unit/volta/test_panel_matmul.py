"""Multiplication with weights in panels: every kernel, on the host, next to numpy in float64.

Where the arithmetic is exact (small integers, powers of two as scales), so is the comparison. Elsewhere the sums may be
off by what adding up in fp32 in any order may cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.volta.host_kernels import IN_ORDER, KERNEL_TOKENS, ORDERS, Array, HostKernels, Order, Plan, Weight
from tests.unit.volta.narrow_formats import e2m1, e4m3, same_bits

FRAGMENTS = ("quad_pairs", "octets")
FORMS = ("nvfp4", "fp8")
# By how much the kernels see weights smaller than they are (panels.h).
SMALLER = {"nvfp4": 2.0**-14, "fp8": 2.0**-8}
ROWS = (1, 31, 33, 130)
COLUMNS = (16, 48, 64, 80, 272)

every_kernel = pytest.mark.parametrize("tokens", KERNEL_TOKENS)
every_form = pytest.mark.parametrize("form", FORMS)
every_fragments = pytest.mark.parametrize("fragments", FRAGMENTS)


@dataclass(frozen=True)
class Problem:
    """A multiplication and its operands; row_scale is what the kernels are given."""

    weight: Weight
    x: Array
    row_scale: Array
    bias: Array | None

    def result(self, kernels: HostKernels, fragments: str, plan: Plan, order: Order = IN_ORDER, gap: int = 0) -> Array:
        return kernels.multiply(self.weight, fragments, self.x, self.row_scale, self.bias, plan, order, gap)

    def values(self) -> Array:
        """The weight as kernels see it, in float64."""
        return seen_values(self.weight)

    def in_float64(self) -> Array:
        """The result before it is rounded."""
        sums = self.x.astype(np.float64) @ self.values().T
        return sums * self.row_scale + (0 if self.bias is None else self.bias.astype(np.float64))

    def error_limit(self) -> Array:
        """How far the result may be from float64: one rounding to fp16, and fp32's for each term of the sums."""
        k = self.x.shape[1]
        terms = np.abs(self.x.astype(np.float64)) @ np.abs(self.values()).T * np.abs(self.row_scale)
        # k products and sums, scale of a block, of a row, bias.
        in_fp32 = (k + 4) * 2.0**-24 * (terms + (0 if self.bias is None else np.abs(self.bias.astype(np.float64))))
        return in_fp32 + np.maximum(np.abs(self.in_float64()) * 2.0**-11, 2.0**-25) * (1 + 2.0**-10)


def seen_values(weight: Weight) -> Array:
    n, k = weight.shape
    if weight.form == "nvfp4":
        assert weight.scales is not None
        values = e2m1(weight.codes) * np.repeat(e4m3(weight.scales), 16, axis=1).astype(np.float64)
    else:
        values = e4m3(weight.codes).astype(np.float64)
        if weight.scales is not None:
            spread = np.repeat(np.repeat(weight.scales, weight.block_rows, axis=0), weight.block_columns, axis=1)
            values = values * spread[:n, :k]
    return values * SMALLER[weight.form]


def powers_of_two(random: np.random.Generator, low: int, high: int, shape: Any) -> Array:
    return (2.0 ** random.integers(low, high + 1, shape)).astype(np.float32)


def block_shape(n: int, k: int, rows: int, columns: int) -> tuple[int, int]:
    return -(-n // rows), -(-k // columns)


def exact_problem(
    random: np.random.Generator, form: str, m: int, n: int, k: int, with_bias: bool, blocks: tuple[int, int] | None
) -> Problem:
    """Sums and results that fp32 holds exactly: 24 bits reach from the largest sum to the last place of any term."""
    x = random.integers(-4, 5, (m, k)).astype(np.float16)
    moderate = random.integers(0x30, 0x48, (n, k)).astype(np.uint8)  # 0.5 to 3.75
    if form == "nvfp4":
        weight = Weight(form, random.integers(0, 16, (n, k)), moderate[:, : k // 16])
    else:
        codes = moderate | random.integers(0, 2, (n, k)).astype(np.uint8) << 7
        scales = None if blocks is None else powers_of_two(random, -2, 1, block_shape(n, k, *blocks))
        weight = Weight(form, codes, scales, *(blocks or (0, 0)))
    row_scale = powers_of_two(random, -2, 1, n) / np.float32(SMALLER[form])
    bias = random.integers(-9, 10, n).astype(np.float16) if with_bias else None
    return Problem(weight, x, row_scale, bias)


def rough_problem(
    random: np.random.Generator, form: str, m: int, n: int, k: int, with_bias: bool, blocks: tuple[int, int] | None
) -> Problem:
    """Numbers of all kinds: every code, every scale, none of them round."""
    x = random.normal(size=(m, k)).astype(np.float16)
    if form == "nvfp4":
        weight = Weight(form, random.integers(0, 16, (n, k)), random.integers(0, 0x7F, (n, k // 16)).astype(np.uint8))
        scale = 1e-3
    else:
        codes = random.integers(0, 0x7F, (n, k)) | random.integers(0, 2, (n, k)) << 7
        scales = None if blocks is None else random.uniform(0.3, 3, block_shape(n, k, *blocks)).astype(np.float32)
        weight = Weight(form, codes.astype(np.uint8), scales, *(blocks or (0, 0)))
        scale = 0.02
    row_scale = (random.uniform(0.5, 2, n) * scale / SMALLER[form]).astype(np.float32)
    bias = random.normal(size=n).astype(np.float16) if with_bias else None
    return Problem(weight, x, row_scale, bias)


def plans(kernels: HostKernels, tokens: int, n: int, k: int) -> list[Plan]:
    """One thread block, few, and as many as there is work for: alone at their rows, or sharing them."""
    most = kernels.units(n, k)
    return [Plan(tokens, blocks) for blocks in sorted({1, 3, 7, most}) if blocks <= most]


@every_kernel
@every_fragments
@every_form
def test_results_are_exact_where_the_arithmetic_is(
    host_kernels: HostKernels, form: str, fragments: str, tokens: int
) -> None:
    random = np.random.default_rng(tokens)
    several_blocks_of_rows = 2 * host_kernels.rows + 44
    number = 0
    for n, k in [*((n, k) for n in ROWS for k in COLUMNS), (several_blocks_of_rows, 208)]:
        for plan in plans(host_kernels, tokens, n, k):
            m = (tokens, tokens // 2 + 1, 1, max(tokens - 3, 1))[number % 4]
            blocks = (None, (32, 64), (64, 128), (128, 128))[(number + number // 4) % 4]
            problem = exact_problem(random, form, m, n, k, with_bias=number % 3 == 0, blocks=blocks)
            found = problem.result(host_kernels, fragments, plan, ORDERS[number // 4 % 4], gap=16 * (number % 5 % 3))
            assert np.array_equal(found, problem.in_float64().astype(np.float16)), (n, k, plan, m, blocks)
            number += 1


@every_kernel
@every_fragments
@every_form
def test_neither_the_order_of_threads_nor_that_of_blocks_changes_a_bit(
    host_kernels: HostKernels, form: str, fragments: str, tokens: int
) -> None:
    """Also where thread blocks share rows, so that another one is the last that arrives."""
    random = np.random.default_rng(tokens)
    n, k = host_kernels.rows + 44, 272
    problem = rough_problem(random, form, max(tokens - 1, 1), n, k, with_bias=True, blocks=(32, 64))
    for plan in plans(host_kernels, tokens, n, k)[1::2]:
        first, *others = (problem.result(host_kernels, fragments, plan, order) for order in ORDERS)
        assert (np.abs(first - problem.in_float64()) <= problem.error_limit()).all()
        for other in others:
            same_bits(other, first)


@every_kernel
@every_fragments
def test_every_nvfp4_code_with_every_scale_is_exact(host_kernels: HostKernels, fragments: str, tokens: int) -> None:
    """All 16 codes times all 127 finite scales from 0 to 448, read back by tokens that are columns of the identity."""
    codes = np.tile(np.arange(16), (32, 4))
    scales = np.minimum(np.arange(128), 126).reshape(32, 4).astype(np.uint8)
    read_back(host_kernels, fragments, tokens, Weight("nvfp4", codes, scales))


@every_kernel
@every_fragments
def test_every_fp8_code_is_exact(host_kernels: HostKernels, fragments: str, tokens: int) -> None:
    codes = np.resize(np.delete(np.arange(256), [0x7F, 0xFF]), (32, 64)).astype(np.uint8)
    read_back(host_kernels, fragments, tokens, Weight("fp8", codes, None))


def read_back(kernels: HostKernels, fragments: str, tokens: int, weight: Weight) -> None:
    row_scale = np.full(32, 1 / SMALLER[weight.form], np.float32)
    for first in range(0, 64, tokens):
        x = np.eye(64, dtype=np.float16)[first : first + tokens]
        found = kernels.multiply(weight, fragments, x, row_scale, None, Plan(tokens, 1))
        expected = seen_values(weight)[:, first : first + tokens].T / SMALLER[weight.form]
        assert np.array_equal(found, expected.astype(np.float16))
        assert np.array_equal(expected.astype(np.float16), expected)


@every_kernel
@every_fragments
@every_form
def test_nan_and_infinity_stay_in_their_token(
    host_kernels: HostKernels, form: str, fragments: str, tokens: int
) -> None:
    random = np.random.default_rng(3)
    n, k = 70, 208
    problem = rough_problem(random, form, tokens, n, k, with_bias=True, blocks=None)
    x = problem.x.copy()
    spoilt = sorted({0, tokens // 3, tokens // 2, tokens - 1})
    for token, (column, value) in zip(spoilt, ((200, np.nan), (100, np.inf), (5, -np.inf), (77, np.nan)), strict=False):
        x[token, column] = value
    clean = [token for token in range(tokens) if token not in spoilt]
    disturbed = Problem(problem.weight, x, problem.row_scale, problem.bias)
    # Numpy has infinity times zero as NaN too.
    with np.errstate(invalid="ignore"):
        expected = disturbed.in_float64()
    for plan in plans(host_kernels, tokens, n, k):
        found = disturbed.result(host_kernels, fragments, plan)
        same_bits(found[clean], problem.result(host_kernels, fragments, plan)[clean])
        assert np.array_equal(found[spoilt], expected[spoilt], equal_nan=True)
        assert not np.isfinite(found[spoilt]).any()


@every_fragments
@every_form
def test_a_sum_beyond_fp16_becomes_infinity(host_kernels: HostKernels, form: str, fragments: str) -> None:
    codes = np.full((32, 64), 7 if form == "nvfp4" else 0x7E, np.uint8)
    codes[1] |= 8 if form == "nvfp4" else 0x80
    weight = Weight(form, codes, np.full((32, 4), 0x7E, np.uint8) if form == "nvfp4" else None)
    x = np.full((2, 64), 60000, np.float16)
    row_scale = np.full(32, 1 / SMALLER[form], np.float32)
    row_scale[2] = np.float32(2.0**-38) / SMALLER[form] ** 0.5
    found = host_kernels.multiply(weight, fragments, x, row_scale, None, Plan(8, 1))
    assert (found[:, 0] == np.inf).all() and (found[:, 1] == -np.inf).all()
    # The sums themselves did not overflow.
    expected = x.astype(np.float64) @ seen_values(weight).T * row_scale
    assert np.allclose(found[:, 2], expected[:, 2], rtol=2.0**-10) and (expected[:, 2] < 65504).all()


@st.composite
def cases(draw: st.DrawFn) -> tuple[Problem, str, int, Order, int]:
    """A problem, fragments, the kernel's tokens, an order, and bytes between rows."""
    form, tokens = draw(st.sampled_from(FORMS)), draw(st.sampled_from(KERNEL_TOKENS))
    m, n, k = draw(st.integers(1, tokens)), draw(st.integers(1, 1100)), 16 * draw(st.integers(1, 26))
    blocks = draw(st.none() | st.tuples(st.sampled_from([32, 96, 128]), st.sampled_from([64, 128, 192])))
    order = Order(draw(st.none() | st.integers(0, 99)), draw(st.booleans()), draw(st.booleans()))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    problem = rough_problem(random, form, m, n, k, draw(st.booleans()), blocks)
    return problem, draw(st.sampled_from(FRAGMENTS)), tokens, order, 16 * draw(st.integers(0, 3))


@settings(max_examples=200)
@given(case=cases(), share=st.floats(0, 1))
def test_any_shape_on_any_number_of_blocks_is_within_the_error_of_fp32(
    host_kernels: HostKernels, case: tuple[Problem, str, int, Order, int], share: float
) -> None:
    problem, fragments, tokens, order, gap = case
    most = host_kernels.units(*problem.weight.shape)
    found = problem.result(host_kernels, fragments, Plan(tokens, 1 + round(share * (most - 1))), order, gap)
    assert (np.abs(found - problem.in_float64()) <= problem.error_limit()).all()
