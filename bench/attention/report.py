"""The harness's findings as short tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.attention.findings import LARGE, LONG_SECONDS, OURS, PEERS, SDPA, TRITON, TRITON_70, Errors, Row
from bench.attention.shapes import Heads
from bench.gpu.text_table import figure, table

DECODE_TARGETS = ((128, 8, 8, 8192, 0.70), (256, 6, 8, 8192, 0.60))
"""Head size, query heads of a KV head, requests, keys; the least share of the copy rate."""
PROMPT_TIMES = 2.0
"""How many times as fast as Triton compiled for sm_70 prompts have to be."""
ERROR_SLACK = 1.0
"""How many times SDPA's error ours may be."""


def errors_table(found: Sequence[Errors]) -> list[str]:
    """A line for each batch."""
    names = list(dict.fromkeys(name for each in found for name in each.errors))
    rows = [
        [
            each.batch.heads.name,
            each.batch.name + (f" q x{LARGE:.0f}" if each.factor != 1 else ""),
            f"{each.rounding:.2e}",
            *(f"{each.errors[name]:.2e}" if name in each.errors else "-" for name in names),
            each.sdpa_backend,
            f"{each.ours / each.errors['SDPA']:.2f}" if each.errors.get("SDPA") else "-",
        ]
        for each in found
    ]
    head = ["heads", "batch", "rounding", *names, "SDPA's", "ours/SDPA"]
    lines = ["Errors by norm against float64", *table(head, rows, left=2)]
    lines += [
        f"  WRONG {each.batch.heads.name} {each.batch.name}: {name} has an error of {each.errors[name]:.2e}"
        for each in found
        for name in each.disagreeing
    ]
    compared = [each for each in found if each.errors.get("SDPA")]
    missed = [each for each in compared if each.ours > ERROR_SLACK * each.errors["SDPA"]]
    if compared:
        worst = max(compared, key=lambda each: each.ours / each.errors["SDPA"])
        lines.append(
            f"target error not larger than SDPA's: worst {worst.ours / worst.errors['SDPA']:.3f}x "
            f"({worst.batch.heads.name} {worst.batch.name}), "
            + (f"larger in {len(missed)} of {len(compared)}" if missed else f"met by all {len(compared)}")
        )
    return lines


def performance_tables(rows: Sequence[Row]) -> list[str]:
    """Decoding and prompts: times and shares, and how many times as fast as each peer."""
    decoding = [row for row in rows if row.batch.decodes]
    prompts = [row for row in rows if not row.batch.decodes]
    lines: list[str] = []
    if decoding:
        lines += ["", "Decoding: microseconds and share of the copy rate (keys x requests)"]
        lines += _grid(decoding, lambda row: f"{figure(row.ours * 1e6)} {row.of_copy:.0%}")
    if prompts:
        lines += ["", "Prompts: microseconds, TFLOP/s and share of cuBLAS' rate in fp16 (new tokens @tokens before)"]
        lines += _grid(
            prompts,
            lambda row: f"{figure(row.ours * 1e6)} {row.batch.operations / row.ours / 1e12:.0f} {row.of_half:.0%}",
        )
    if rows:
        lines.append(f"-: no implementation takes it, or it would take more than {LONG_SECONDS} s")
    for title, chosen in (("Decoding", decoding), ("Prompts", prompts)):
        for peer in PEERS:
            timed = [row for row in chosen if peer in row.seconds]
            if timed:
                name = peer if peer != SDPA else "SDPA (f flash, e efficient, x expanded, m math)"
                lines += ["", f"{title}: times as fast as {name}"]
                lines += _grid(chosen, lambda row, peer=peer: _ratio(row, peer))  # type: ignore[misc]
    return lines


def _ratio(row: Row, peer: str) -> str:
    ratio = row.times_as_fast(peer)
    if ratio is None:
        return "-"
    short = "".join(part[0] if part != "expanded" else "x" for part in row.sdpa_backend.split(", "))
    return f"{ratio:.2f}" + (f" {short}" if peer == SDPA else "")


def _grid(rows: Sequence[Row], cell: Callable[[Row], str]) -> list[str]:
    columns = list(dict.fromkeys(row.batch.name for row in sorted(rows, key=_order)))
    heads = list(dict.fromkeys(row.batch.heads for row in rows))
    cells = {(row.batch.heads, row.batch.name): cell(row) for row in rows}
    return table(
        ["heads", *columns], [[each.name, *(cells.get((each, name), "") for name in columns)] for each in heads]
    )


def _order(row: Row) -> tuple[int, int, int]:
    batch = row.batch
    return (batch.requests, batch.length, 0) if batch.decodes else (0, batch.length - batch.queries, batch.queries)


def targets(rows: Sequence[Row]) -> list[str]:
    """Each target and how far it is met."""
    lines = []
    for head_size, group, requests, length, least in DECODE_TARGETS:
        for row in rows:
            batch = row.batch
            if (batch.heads.head_size, batch.heads.group) == (head_size, group) and (
                batch.requests,
                batch.queries,
                batch.length,
            ) == (requests, 1, length):
                verdict = "met" if row.of_copy >= least else "MISSED"
                lines.append(f"target {least:.0%} of the copy rate: {batch.heads.name} {batch.name} "
                             f"{row.of_copy:.0%}, {verdict}")  # fmt: skip
    for title, decodes, least in (("decoding", True, 1.0), ("prompts", False, PROMPT_TIMES)):
        chosen = [row for row in rows if row.batch.decodes == decodes and TRITON_70 in row.seconds]
        if chosen:
            lines.append(_least(f"{title} {least:g}x Triton sm_70", chosen, TRITON_70, least))
    for title, decodes in (("decoding", True), ("prompts", False)):
        chosen = [row for row in rows if row.batch.decodes == decodes and TRITON in row.seconds]
        if chosen:
            lines.append(_least(f"{title} as fast as native Triton (not asked for)", chosen, TRITON, 1.0))
    return lines


def _least(title: str, rows: Sequence[Row], peer: str, least: float) -> str:
    ratios = sorted(((row.seconds[peer] / row.seconds[OURS], row) for row in rows), key=lambda pair: pair[0])
    (worst, row), (middle, _) = ratios[0], ratios[len(ratios) // 2]
    missed = sum(ratio < least for ratio, _ in ratios)
    verdict = f"missed by {missed} of {len(ratios)}" if missed else f"met by all {len(ratios)}"
    return (
        f"target {title}: least {worst:.2f}x ({row.batch.heads.name} {row.batch.name}), middle {middle:.2f}x, {verdict}"
    )


def left_out(heads: Sequence[Heads], expected: int, rows: Sequence[Row]) -> list[str]:
    """What time did not suffice for."""
    missing = expected - len(rows)
    return [f"{missing} of {expected} batches of {len(heads)} layers left out"] if missing else []
