"""What a comparison with the original says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from onecat.checkpoints.integrity import Fault
from onecat.nvfp4.codec import Deviation, total
from onecat.nvfp4.comparison.limits import limits_of
from onecat.nvfp4.conversion.records import relative_error, sqnr

Verdict = Literal["usual", "far", "wrong"]


@dataclass(frozen=True)
class ComparedModule:
    """A weight that is not bit for bit that of the original.

    name: of the module. scheme: as `QuantisedWeight` names it, `plain` for none. shape: of the plain weight.
    cause: what explains a wrong one, found by trying; None when nothing did. was_tried: whether it was looked into.
    """

    name: str
    scheme: str
    shape: tuple[int, ...]
    deviation: Deviation
    cause: str | None = None
    was_tried: bool = False

    @property
    def relative_error(self) -> float:
        """Length of the error by the length of the original, as vectors."""
        return relative_error(self.deviation)

    @property
    def sqnr(self) -> float | None:
        """Signal to quantisation noise in dB, None when there is no noise."""
        return sqnr(self.deviation)

    @property
    def verdict(self) -> Verdict:
        """Against the limits of the scheme."""
        limits, error = limits_of(self.scheme), self.relative_error
        if not self.deviation.squared_signal and self.deviation.squared_error:
            return "wrong"
        # A NaN is further than anything.
        return "usual" if error <= limits.warn else "far" if error <= limits.fail else "wrong"


@dataclass(frozen=True)
class Comparison:
    """original: its directory. modules: in the order of the checkpoint. equal, rounded: plain tensors that are the same
    bit for bit, or but for the rounding to their type. faults: of all of it. seconds: that it took."""

    original: str
    modules: tuple[ComparedModule, ...]
    equal: int
    rounded: int
    faults: tuple[Fault, ...]
    seconds: float

    @property
    def total(self) -> Deviation | None:
        """All modules taken as one; None without any."""
        if not self.modules:
            return None
        return total(each.deviation for each in self.modules)

    def worst(self) -> Iterator[ComparedModule]:
        """The modules, those with the largest errors first."""
        yield from sorted(self.modules, key=lambda each: -each.relative_error)
