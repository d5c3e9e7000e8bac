"""The harness's findings as short tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.gpu import claims as claims_module
from bench.gpu.text_table import figure, table
from bench.kernels.findings import ERROR, SUMMATION, Crossing, ProductClaim, Row
from bench.kernels.shapes import Layer

CLAIM_FIGURES = {ERROR: ".3e", SUMMATION: ".1e"}


def claims_table(title: str, claims: Sequence[ProductClaim]) -> list[str]:
    """A line for each claim with its worst errors, and the first things that are wrong with each."""
    return claims_module.claims_table(title, claims, CLAIM_FIGURES)


def performance_tables(rows: Sequence[Row]) -> list[str]:
    """Per format: times as fast as fp16, and microseconds with the share of the copy rate."""
    lines: list[str] = []
    for format_ in dict.fromkeys(row.format for row in rows):
        chosen = [row for row in rows if row.format == format_]
        lines += ["", f"{format_}: times as fast as torch's fp16 matmul (cuBLAS)"]
        lines += _by_tokens(chosen, lambda row: f"{row.ratio:.2f}")
        lines += ["", f"{format_}: microseconds, and up to 64 tokens the share of the copy rate"]
        lines += _by_tokens(
            chosen,
            lambda row: figure(row.seconds * 1e6) + (f" {row.rate / row.copy_rate:.0%}" if row.m <= 64 else ""),
        )
    return lines


def _by_tokens(rows: Sequence[Row], cell: Callable[[Row], str]) -> list[str]:
    tokens = sorted({row.m for row in rows})
    layers = list(dict.fromkeys(row.layer for row in rows))
    cells = {(row.layer, row.m): cell(row) for row in rows}
    body = [[_name(layer), _size(layer), *(cells.get((layer, m), "-") for m in tokens)] for layer in layers]
    return table(["layer", "n x k", *(f"m={m}" for m in tokens)], body)


def crossings_table(crossings: Sequence[Crossing]) -> list[str]:
    rows = [
        [
            _name(each.layer),
            each.format,
            _size(each.layer),
            str(each.m),
            figure(each.panels_seconds * 1e6),
            figure(each.dequantised_seconds * 1e6),
            figure(each.half_seconds * 1e6),
            "panels" if each.panels_seconds <= each.dequantised_seconds else "dequantised",
        ]
        for each in crossings
    ]
    head = ["layer", "format", "n x k", "m", "panels us", "dequantise + GEMM us", "fp16 us", "faster"]
    return ["", "Panels in slices of 64, or dequantise and GEMM", *table(head, rows, left=3)]


TARGETS = ((1, 2.5), (8, 2.2), (16, 1.8), (64, 1.0), (1024, 0.85), (2048, 0.85))
"""Tokens and how many times as fast as fp16 NVFP4 has to be; with one token for weights of 64 Mi and more."""
LARGE_WEIGHT = 64 * 2**20


def targets(rows: Sequence[Row]) -> list[str]:
    """Each target with the least and the middle ratio of the layers it counts for."""
    lines = []
    for m, least in TARGETS:
        chosen = [row for row in rows if row.format == "nvfp4" and row.m == m]
        if m == 1:
            chosen = [row for row in chosen if row.layer.weights >= LARGE_WEIGHT]
        counted = sorted(chosen, key=lambda row: row.ratio)
        if counted:
            worst, middle = counted[0], counted[len(counted) // 2]
            missed = sum(row.ratio < least for row in counted)
            lines.append(
                f"target m={m}: {least}x; least {worst.ratio:.2f}x ({_name(worst.layer)}), middle {middle.ratio:.2f}x, "
                + (f"missed by {missed} of {len(counted)} layers" if missed else f"met by all {len(counted)} layers")
            )
    return lines


def _name(layer: Layer) -> str:
    return f"{layer.model} {layer.name}"


def _size(layer: Layer) -> str:
    return f"{layer.n} x {layer.k}"
