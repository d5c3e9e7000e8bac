"""What the harness finds: claims and what is wrong with them, times. Plain records."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from bench.gpu.claims import Claim
from bench.kernels.shapes import Layer

NORM_LIMIT = 2e-4
"""Largest relative error by norm at K = 8192. Rounding normally distributed results to fp16 makes 1.8e-4 to 2.15e-4
of it alone, whatever the kernel: what exceeds the limit has to be that rounding."""
SUMMATION_LIMIT = 5e-5
"""What summation may add to the rounding, by squares: a quarter of the limit."""
ENOUGH_RESULTS = 4096
"""So many results make the error of rounding an average rather than chance."""


@dataclass(frozen=True)
class Comparison:
    """error: by norm, relative, over finite results. rounding: the same of the float64 result rounded to fp16.
    worst: largest deviation in units of what is allowed for that result. wrong: results that may not be so."""

    error: float
    rounding: float
    worst: float
    wrong: int
    results: int

    @property
    def summation(self) -> float:
        """What of the error rounding does not explain."""
        excess = self.error**2 - self.rounding**2
        return 0.0 if excess <= 0 else math.sqrt(excess)  # NaN stays NaN, which no limit admits


ERROR, SUMMATION = "worst error", "without rounding"


@dataclass
class ProductClaim(Claim):
    """A claim about products, with their largest errors by norm: in all, and what rounding does not explain."""

    def see_result(self, found: Comparison, what: str, rounded_weights: bool = False) -> None:
        """Hold the errors by norm to their limits where there are results enough for them to be averages."""
        self.note(ERROR, found.error if found.results >= ENOUGH_RESULTS else 0.0)
        self.note(SUMMATION, found.summation)
        held = found.wrong == 0
        if found.results >= ENOUGH_RESULTS and not rounded_weights:
            held = held and found.summation <= SUMMATION_LIMIT
        self.see(
            held,
            f"{what}: {found.wrong} of {found.results} results wrong, error {found.error:.2e} (rounding alone "
            f"{found.rounding:.2e}), worst {found.worst:.2f} of what is allowed",
        )


@dataclass(frozen=True)
class Row:
    """One multiplication of m tokens. seconds: of the layer's operator; half_seconds: of torch's fp16 matmul.

    moved: bytes that the multiplication with panels reads and writes at least: weights, activations, results.
    """

    layer: Layer
    format: str
    m: int
    seconds: float
    half_seconds: float
    moved: int
    copy_rate: float

    @property
    def ratio(self) -> float:
        """How many times as fast as fp16."""
        return self.half_seconds / self.seconds

    @property
    def rate(self) -> float:
        return self.moved / self.seconds

    @property
    def record(self) -> dict[str, object]:
        return {
            **asdict(self),
            "ratio": self.ratio,
            "gb_per_second": self.rate / 1e9,
            "of_copy": self.rate / self.copy_rate,
            "tflops": 2e-12 * self.m * self.layer.weights / self.seconds,
            "half_tflops": 2e-12 * self.m * self.layer.weights / self.half_seconds,
        }


@dataclass(frozen=True)
class Crossing:
    """The two ways of multiplying m tokens: with panels in slices of 64, and with dequantised tiles."""

    layer: Layer
    format: str
    m: int
    panels_seconds: float
    dequantised_seconds: float
    half_seconds: float
