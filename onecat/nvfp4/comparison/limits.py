"""How far a quantised weight usually is from the one that it was made of, and what is too far.

Measured with onecat's codec on 1024 x 1024 weights (normal, uniform, Laplace, Student's t with 2, 3 and 5 degrees of
freedom, rows and columns of lognormal sizes, single outliers) and on onecat's small model, as the length of the error
by the length of the weight: NVFP4 4 to 10.2 %, of which 8.1 to 9.5 % for trained matrices; FP8 with a scale for each
block, channel or tensor 1.7 to 2.7 %. Heavy tails make it less: large weights have the length, and small errors.
Rounding that minimises the error of outputs (GPTQ) and training with quantisation move weights further.
"""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Relative errors. usual: of a sound weight. warn: what is further is told. fail: what is further is wrong."""

    usual: float
    warn: float
    fail: float


NVFP4 = Limits(0.095, 0.14, 0.25)
"""2.5 times the usual error; what a tool writes wrongly has 30 % (scales in another order) to 140 % (other values)."""
FP8 = Limits(0.0265, 0.04, 0.066)
PLAIN = NVFP4
"""A plain copy may have been made from a quantised one."""


def limits_of(scheme: str) -> Limits:
    """Of a scheme as `QuantisedWeight` names it, `plain` for none."""
    return FP8 if scheme.startswith("fp8") else NVFP4
