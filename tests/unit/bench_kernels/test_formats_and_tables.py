"""The harness's own decoding, against ml_dtypes, and its tables."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from bench.gpu.text_table import figure, table
from bench.kernels import reference


def test_every_e4m3_code_has_its_value() -> None:
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    found = np.array(reference.e4m3_values())
    assert np.array_equal(found, expected, equal_nan=True)
    assert [code for code, value in enumerate(found) if math.isnan(value)] == [0x7F, 0xFF]


def test_every_e2m1_code_has_its_value() -> None:
    expected = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    assert np.array_equal(np.array(reference.e2m1_values()), expected)


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(["layer", "m=1", "m=16"], [["qkv", "2.50", "1"], ["gate_up", "3", "11.25"]]) == [
        "layer     m=1   m=16",
        "qkv      2.50      1",
        "gate_up     3  11.25",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0"), (12345.6, "12300"), (0.04567, "0.0457"), (99.96, "100"), (3, "3")]
)
def test_figures_keep_three_digits(value: float | None, text: str) -> None:
    assert figure(value) == text
