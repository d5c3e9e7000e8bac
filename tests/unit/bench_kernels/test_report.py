"""The harness's tables, from findings that are made up here."""

from __future__ import annotations

import pytest

from bench.kernels.findings import Comparison, Crossing, ProductClaim, Row
from bench.kernels.report import claims_table, crossings_table, performance_tables, targets
from bench.kernels.shapes import Layer

LARGE = Layer("model", "up", 28672, 8192, 1)
SMALL = Layer("model", "o", 4096, 4096, 1)


def row(layer: Layer, m: int, seconds: float, half_seconds: float, format_: str = "nvfp4") -> Row:
    return Row(layer, format_, m, seconds, half_seconds, moved=2_000_000, copy_rate=4e12)


def test_a_row_tells_its_rates() -> None:
    record = row(SMALL, 8, 1e-6, 2.5e-6).record
    assert record["ratio"] == pytest.approx(2.5)
    assert record["gb_per_second"] == pytest.approx(2000)
    assert record["of_copy"] == pytest.approx(0.5)
    assert record["tflops"] == pytest.approx(2 * 8 * 4096 * 4096 / 1e-6 / 1e12)


def test_layers_are_lines_and_numbers_of_tokens_columns() -> None:
    rows = [row(LARGE, 1, 1e-6, 2.5e-6), row(LARGE, 256, 4e-6, 2e-6), row(SMALL, 1, 2e-6, 3e-6)]
    assert performance_tables(rows) == [
        "",
        "nvfp4: times as fast as torch's fp16 matmul (cuBLAS)",
        "layer            n x k   m=1  m=256",
        "model up  28672 x 8192  2.50   0.50",
        "model o    4096 x 4096  1.50      -",
        "",
        "nvfp4: microseconds, and up to 64 tokens the share of the copy rate",
        "layer            n x k    m=1  m=256",
        "model up  28672 x 8192  1 50%      4",
        "model o    4096 x 4096  2 25%      -",
    ]


def test_a_target_for_one_token_counts_large_weights_alone() -> None:
    rows = [
        row(LARGE, 1, 1e-6, 2.6e-6),
        row(SMALL, 1, 1e-6, 1e-6),
        row(SMALL, 8, 1e-6, 2e-6),
        row(LARGE, 8, 1e-6, 3e-6),
    ]
    rows.append(row(LARGE, 1, 1e-6, 1e-6, "fp8 block"))
    assert targets(rows) == [
        "target m=1: 2.5x; least 2.60x (model up), middle 2.60x, met by all 1 layers",
        "target m=8: 2.2x; least 2.00x (model o), middle 3.00x, missed by 1 of 2 layers",
    ]


def test_the_faster_way_is_named() -> None:
    found = [Crossing(SMALL, "nvfp4", m, 2e-6, other, 1e-6) for m, other in ((64, 3e-6), (128, 1e-6))]
    lines = crossings_table(found)
    assert [line.split()[-1] for line in lines[3:]] == ["panels", "dequantised"]


def comparison(error: float, rounding: float, wrong: int = 0, results: int = 10_000) -> Comparison:
    return Comparison(error, rounding, 0.5, wrong, results)


@pytest.mark.parametrize(
    ("found", "rounded_weights", "held"),
    [
        pytest.param(comparison(2.1e-4, 2.1e-4), False, True, id="rounding alone"),
        pytest.param(comparison(2.2e-4, 2.1e-4), False, False, id="half as much again from sums"),
        pytest.param(comparison(2.9e-4, 2.1e-4), True, True, id="weights are rounded too"),
        pytest.param(comparison(2.1e-4, 2.1e-4, wrong=1), True, False, id="one result that may not be"),
        pytest.param(comparison(2.9e-4, 2.1e-4, results=8), False, True, id="too few results for an average"),
        pytest.param(comparison(float("nan"), 2.1e-4), False, False, id="not a number"),
    ],
)
def test_a_claim_holds_results_to_what_rounding_explains(found: Comparison, rounded_weights: bool, held: bool) -> None:
    claim = ProductClaim("some claim")
    claim.see_result(found, "a case", rounded_weights)
    assert (claim.cases, claim.wrong == []) == (1, held)


def test_what_is_wrong_is_shown_below_the_table() -> None:
    claim = ProductClaim("some claim")
    for i in range(5):
        claim.see(i == 0, f"case {i}")
    lines = claims_table("Title", [claim, ProductClaim("other", cases=2)])
    assert lines[0] == "Title"
    assert lines[2].split()[:4] == ["some", "claim", "5", "4"]
    assert lines[3].split()[:3] == ["other", "2", "-"]
    assert lines[4:] == [*(f"  WRONG some claim: case {i}" for i in (1, 2, 3)), "  ... and 1 more"]
