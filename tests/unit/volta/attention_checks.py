"""What the tests of both kernels for attention share: how requests lie in memory, and when a result is right."""

from __future__ import annotations

import numpy as np

from tests.unit.volta.attention_reference import HALF, Array, Attention, in_float64, in_fp16, with_limit
from tests.unit.volta.host_attention import PLAIN, Layout

GROUPS = (1, 3, 4, 6, 8, 12, 16)
LAYOUTS = (
    PLAIN,
    Layout(32, seed=1, gap=8),
    Layout(48, seed=2, heads_first=True),
    Layout(784, seed=3, gap=24),
    Layout(16, seed=4, gap=8, heads_first=True),
)
WINDOWS = (1, 2, 15, 16, 17, 31, 32, 33, 95, 127, 128, 129, 161, 1000)


def check(problem: Attention, found: Array) -> None:
    """Within fp16 of float64 in every number."""
    exact, limit = with_limit(problem)
    is_result = ~np.isnan(exact)
    assert (np.abs(found - exact) <= limit)[is_result].all(), (np.abs(found - exact) / limit)[is_result].max()
    check_untouched(found, ~is_result)


def check_counts(problem: Attention, found: Array) -> None:
    """Shares of whole numbers, rounded once."""
    exact = in_float64(problem)
    assert (np.abs(found - exact) <= exact * HALF * (1 + 2.0**-9) + 2.0**-25).all()


def check_values(problem: Attention, found: Array, expected: Array) -> None:
    """Equal, in every number that is a result."""
    is_result = ~np.isnan(in_float64(problem))
    assert np.array_equal(found[is_result], expected[is_result])
    check_untouched(found, ~is_result)


def check_untouched(found: Array, where: Array) -> None:
    """Tokens of no request are left alone."""
    assert (found.view(np.uint16) == 0xFFFF)[where].all()


def check_row_by_row(problem: Attention, found: Array) -> None:
    """As `check`, but for rows whose query has NaN, which are NaN throughout."""
    is_spoilt = np.isnan(problem.query).any(axis=2)
    assert np.isnan(found[is_spoilt]).all()
    clean = np.where(np.isnan(problem.query), 0, problem.query)
    repaired = Attention(problem.requests, clean, problem.keys, problem.values, problem.scale)
    exact, limit = with_limit(repaired)
    assert (np.abs(found - exact) <= limit)[~is_spoilt].all()


def check_mean_error(problem: Attention, found: Array) -> None:
    """Within 5 % of attention that rounds to fp16 exponentials and results only, in the mean over all numbers."""
    exact = in_float64(problem)

    def error(result: Array) -> float:
        return float(np.sqrt(np.mean((result - exact) ** 2)))

    assert error(found) < 1.05 * error(in_fp16(problem))
