"""What the harness finds: errors and times. Plain records, without torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bench.attention.shapes import Batch

QUAD_PAIRS, OCTETS = 0, 1
FRAGMENTS = {QUAD_PAIRS: "quad pairs", OCTETS: "octets"}
"""Orders of fragments that the kernels exist for, by the number that the operators take."""
OURS, SDPA, TRITON, TRITON_70 = "ours", "SDPA", "Triton", "Triton sm_70"
PEERS = (SDPA, TRITON, TRITON_70)
LONG_SECONDS = 0.3
"""A peer is not timed on a batch that would take longer, by its rate on a smaller batch of the same heads."""
LARGE = 8.0
"""Queries are so many times as large in the second half of the cases: attention to few keys instead of many."""
AGREEMENT = 5e-3
"""An error by norm above this is no rounding: what computes it computes something else."""


@dataclass(frozen=True)
class Errors:
    """Relative errors by norm of one batch, by who made them; the best that an fp16 result can have, `rounding`."""

    batch: Batch
    factor: float
    rounding: float
    sdpa_backend: str
    errors: dict[str, float]

    @property
    def ours(self) -> float:
        return max(value for name, value in self.errors.items() if name in FRAGMENTS.values())

    @property
    def disagreeing(self) -> list[str]:
        """Who is further away than rounding explains, or no number."""
        return [name for name, error in self.errors.items() if not error <= AGREEMENT]


@dataclass(frozen=True)
class Row:
    """One batch. seconds: by implementation, where it was timed. sdpa_backend: which of SDPA's it was."""

    batch: Batch
    seconds: dict[str, float]
    sdpa_backend: str
    copy_rate: float
    half_rate: float

    @property
    def ours(self) -> float:
        return self.seconds[OURS]

    @property
    def of_copy(self) -> float:
        """Share of the rate at which the GPU copies."""
        return self.batch.moved_bytes / self.ours / self.copy_rate

    @property
    def of_half(self) -> float:
        """Share of cuBLAS' rate in fp16."""
        return self.batch.operations / self.ours / self.half_rate

    def times_as_fast(self, peer: str) -> float | None:
        return self.seconds[peer] / self.ours if peer in self.seconds else None

    @property
    def record(self) -> dict[str, object]:
        return {
            **asdict(self),
            "gb_per_second": {name: self.batch.moved_bytes / each / 1e9 for name, each in self.seconds.items()},
            "tflops": {name: self.batch.operations / each / 1e12 for name, each in self.seconds.items()},
            "of_copy": self.of_copy,
            "of_half": self.of_half,
        }
