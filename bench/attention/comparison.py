"""Whether fp16 results are as close to float64 as rounding weights and results to fp16 lets them be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from bench.attention.reference import Exact

ROW_LIMIT = 2.0
"""A row's error by norm, in standard deviations of what rounding makes: one weight alone makes up to sqrt(3)."""


@dataclass(frozen=True)
class Comparison:
    """error: by norm, relative, over all rows. rounding: that of the float64 results rounded to fp16. worst_row: the
    largest error of a row in units of what is allowed. wrong: elements that may not be so, and rows."""

    error: float
    rounding: float
    worst_row: float
    wrong_elements: int
    wrong_rows: int
    elements: int

    @property
    def holds(self) -> bool:
        return not self.wrong_elements and not self.wrong_rows

    def __str__(self) -> str:
        return (
            f"{self.wrong_elements} of {self.elements} elements and {self.wrong_rows} rows wrong, error "
            f"{self.error:.2e} (rounding alone {self.rounding:.2e}), worst row {self.worst_row:.2f} of what is allowed"
        )


def compare(found: torch.Tensor, exact: Exact) -> Comparison:
    """found: fp16 [tokens, heads, head_size]. Rows of tokens without keys are left out."""
    rows = exact.answered
    value, result = found[rows].double(), exact.result[rows]
    spread, drift, most = exact.spread[rows], exact.drift[rows], exact.most[rows]
    _, exponent = torch.frexp(result.abs().clamp_min(2.0**-14))
    unit = torch.ldexp(torch.ones_like(result), exponent - 11)
    deviation = (value - result).abs()
    # 1 + 2^-8: a result that is off by what is allowed may be rounded in the next higher power of two.
    element_is_fine = deviation <= most + unit * (0.5 * (1 + 2.0**-8))
    of_rounding = ((unit * unit / 12) + spread * spread).sum(2).sqrt()
    row_error = deviation.norm(dim=2)
    allowed = ROW_LIMIT * of_rounding + drift.norm(dim=2)
    row_is_fine = row_error <= allowed
    norm = result.norm().item()
    return Comparison(
        error=relative(deviation.norm().item(), norm),
        rounding=relative((result.half().double() - result).norm().item(), norm),
        worst_row=(row_error / allowed).max().item() if row_error.numel() else 0.0,
        wrong_elements=int((~element_is_fine).sum().item()),
        wrong_rows=int((~row_is_fine).sum().item()),
        elements=result.numel(),
    )


def relative(error: float, norm: float) -> float:
    return error / norm if norm else (0.0 if error == 0 else math.inf)


def norm_error(found: torch.Tensor, exact: Exact) -> float:
    """The error by norm, relative."""
    rows = exact.answered
    result = exact.result[rows]
    return relative((found[rows].double() - result).norm().item(), result.norm().item())
