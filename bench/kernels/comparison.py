"""How far an fp16 result is from the float64 one, and whether rounding and summation in fp32 explain it."""

from __future__ import annotations

import torch

from bench.kernels.findings import Comparison

LARGEST_HALF = 65504.0
OVERFLOW = 65520.0  # from here on fp16 rounds to infinity


def compare(
    found: torch.Tensor, exact: torch.Tensor, magnitudes: torch.Tensor, k: int, besides: torch.Tensor | float = 0.0
) -> Comparison:
    """found: fp16. exact: float64. magnitudes: sums of the products' magnitudes. besides: what else may deviate.

    Allowed is half a unit in the last place of fp16, and for each sum of four products a unit in the last place of
    fp32 relative to those magnitudes: tensor cores cut off instead of rounding. NaN and infinities must be where
    they are in `exact`; what is too large for fp16 must be infinite.
    """
    values = found.double()
    nan = torch.isnan(exact)
    infinite = torch.isinf(exact)
    regular = ~nan & ~infinite
    _, exponent = torch.frexp(exact.abs().nan_to_num(posinf=LARGEST_HALF).clamp(2.0**-14, LARGEST_HALF))
    summation = magnitudes.nan_to_num(posinf=0.0) * ((k / 4 + 64) * 2.0**-23) + besides
    allowed = torch.ldexp(torch.ones_like(exact), exponent - 12) * (1 + 2.0**-10) + summation
    deviation = (values - exact).abs()
    large = regular & (exact.abs() + allowed >= OVERFLOW)
    overflowed = large & torch.isinf(values) & (torch.sign(values) == torch.sign(exact))
    fine = torch.where(
        regular,
        (deviation <= allowed) & (exact.abs() - summation < OVERFLOW) | overflowed,
        torch.where(nan, torch.isnan(values), values == exact),
    )
    counted = regular & ~large
    norm = exact[counted].norm().item()
    rounded = exact.clamp(-LARGEST_HALF, LARGEST_HALF).half().double()
    return Comparison(
        error=deviation[counted].norm().item() / norm if norm else 0.0,
        rounding=(rounded - exact)[counted].norm().item() / norm if norm else 0.0,
        worst=(deviation / allowed)[counted].max().item() if counted.any() else 0.0,
        wrong=int((~fine).sum().item()),
        results=exact.numel(),
    )
