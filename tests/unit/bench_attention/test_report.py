"""The harness's tables, from findings that are made up here."""

from __future__ import annotations

import pytest

from bench.attention.findings import LARGE, Errors, Row
from bench.attention.report import errors_table, left_out, performance_tables, targets
from bench.attention.shapes import LLAMA_8B, LLAMA_70B, Batch

COPY, HALF = 4e12, 700e12
DECODING = Batch(LLAMA_70B, 8, 1, 8192)
PROMPT = Batch(LLAMA_70B, 1, 2048, 2048)


def row(batch: Batch, ours: float, backend: str = "flash", **others: float) -> Row:
    names = {"sdpa": "SDPA", "triton": "Triton", "volta": "Triton sm_70"}
    return Row(batch, {"ours": ours, **{names[name]: value for name, value in others.items()}}, backend, COPY, HALF)


def test_a_row_tells_its_rates() -> None:
    found = row(DECODING, 100e-6, volta=250e-6)
    moved = 8 * (8192 * 2 * 2 * 8 * 128 + 2 * 2 * 64 * 128)
    assert found.of_copy == pytest.approx(moved / 100e-6 / COPY)
    assert found.times_as_fast("Triton sm_70") == pytest.approx(2.5)
    assert found.times_as_fast("SDPA") is None
    record = found.record
    assert record["tflops"] == {
        "ours": pytest.approx(4 * 8 * 64 * 128 * 8192 / 100e-6 / 1e12),
        "Triton sm_70": pytest.approx(4 * 8 * 64 * 128 * 8192 / 250e-6 / 1e12),
    }


def test_heads_are_lines_and_batches_columns() -> None:
    lines = performance_tables(
        [
            row(DECODING, 80e-6, "efficient, expanded", sdpa=160e-6, volta=200e-6),
            row(Batch(LLAMA_8B, 8, 1, 8192), 100e-6),
            row(PROMPT, 1e-3, volta=4e-3),
        ]
    )
    assert lines == [
        "",
        "Decoding: microseconds and share of the copy rate (keys x requests)",
        "heads                  8k x8",
        "Llama-70B 64/8 D128   80 84%",
        "Llama-8B 32/8 D128   100 67%",
        "",
        "Prompts: microseconds, TFLOP/s and share of cuBLAS' rate in fp16 (new tokens @tokens before)",
        "heads                         2k",
        "Llama-70B 64/8 D128  1000 69 10%",
        "-: no implementation takes it, or it would take more than 0.3 s",
        "",
        "Decoding: times as fast as SDPA (f flash, e efficient, x expanded, m math)",
        "heads                  8k x8",
        "Llama-70B 64/8 D128  2.00 ex",
        "Llama-8B 32/8 D128         -",
        "",
        "Decoding: times as fast as Triton sm_70",
        "heads                8k x8",
        "Llama-70B 64/8 D128   2.50",
        "Llama-8B 32/8 D128       -",
        "",
        "Prompts: times as fast as Triton sm_70",
        "heads                  2k",
        "Llama-70B 64/8 D128  4.00",
    ]


def test_targets_are_met_or_missed() -> None:
    slow = Batch(LLAMA_70B, 1, 512, 512)
    rows = [row(DECODING, 80e-6, volta=200e-6), row(PROMPT, 1e-3, volta=4e-3), row(slow, 1e-3, volta=1.5e-3)]
    assert targets(rows) == [
        "target 70% of the copy rate: Llama-70B 64/8 D128 8k x8 84%, met",
        "target decoding 1x Triton sm_70: least 2.50x (Llama-70B 64/8 D128 8k x8), middle 2.50x, met by all 1",
        "target prompts 2x Triton sm_70: least 1.50x (Llama-70B 64/8 D128 512), middle 4.00x, missed by 1 of 2",
    ]
    assert "MISSED" in targets([row(DECODING, 200e-6)])[0]


def errors(ours: float, sdpa: float | None = 3e-4, triton: float = 3e-4, factor: float = 1.0) -> Errors:
    found = {"quad pairs": ours, "octets": 2e-4, **({} if sdpa is None else {"SDPA": sdpa}), "Triton": triton}
    return Errors(DECODING, factor, 2e-4, "flash", found)


def test_errors_stand_side_by_side() -> None:
    lines = errors_table([errors(3.3e-4), errors(2.4e-4, factor=LARGE), errors(2e-4, sdpa=None)])
    assert lines[1].split()[-1] == "ours/SDPA"
    assert [line.split()[-1] for line in lines[2:5]] == ["1.10", "0.80", "-"]
    assert "q x8" in lines[3]
    assert lines[5].endswith("worst 1.100x (Llama-70B 64/8 D128 8k x8), larger in 1 of 2")


@pytest.mark.parametrize("error", [0.3, float("nan")])
def test_an_error_that_rounding_does_not_explain_is_wrong(error: float) -> None:
    found = errors(2e-4, triton=error)
    assert found.disagreeing == ["Triton"]
    assert any(line.startswith("  WRONG") and "Triton has" in line for line in errors_table([found]))


def test_what_was_left_out_is_said() -> None:
    assert left_out([LLAMA_8B], 5, [row(PROMPT, 1.0)] * 3) == ["2 of 5 batches of 1 layers left out"]
    assert left_out([LLAMA_8B], 1, [row(PROMPT, 1.0)]) == []
