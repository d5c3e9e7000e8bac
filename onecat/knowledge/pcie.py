"""Reads the table about PCI Express as typed records."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class PcieGeneration:
    """speed: of a lane, as "8.0 GT/s". lane_bytes_per_second: what a lane carries after its line code."""

    generation: int
    speed: str
    lane_bytes_per_second: int
    source: tuple[str, ...]

    def gigabytes_per_second(self, width: int) -> float:
        """What a link of `width` lanes carries in one direction, in 10^9 bytes per second."""
        return self.lane_bytes_per_second * width / 1e9


@functools.cache
def pcie_generations() -> tuple[PcieGeneration, ...]:
    """Every row of pcie.yaml."""
    return tuple(PcieGeneration(**frozen(row)) for row in table("pcie.yaml"))


def pcie_generation(generation: int | None) -> PcieGeneration | None:
    """A generation by its number, or None when the table does not know it."""
    return next((each for each in pcie_generations() if each.generation == generation), None)


def generation_of_speed(speed: str | None) -> int | None:
    """The generation of a speed such as "8.0 GT/s PCIe", "8GT/s" or "16 GT/s"; None when it is none of them."""
    number = re.match(r"\s*([0-9]{1,3}(?:\.[0-9])?)\s*GT/s", speed or "")
    if number is None:
        return None
    rate = float(number.group(1))
    return next((each.generation for each in pcie_generations() if float(each.speed.split()[0]) == rate), None)
