"""Reads the table about Ascend NPUs as typed records."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class AscendRelease:
    """A release of vllm-ascend and what it was built and tested with."""

    engine: str
    cann: str
    torch_npu: str


@dataclass(frozen=True)
class AscendChip:
    """A family of NPUs. pattern: of its names. fp8: whether it calculates in FP8."""

    pattern: str
    series: str
    supported: bool
    fp8: bool


@dataclass(frozen=True)
class AscendTable:
    """Everything known. environment_scripts: for each, the names of which one must be there."""

    releases: tuple[AscendRelease, ...]
    chips: tuple[AscendChip, ...]
    device_nodes: tuple[str, ...]
    driver_files: tuple[str, ...]
    environment_scripts: tuple[tuple[str, ...], ...]
    source: tuple[str, ...]


@functools.cache
def ascend_table() -> AscendTable:
    """The content of ascend.yaml."""
    rows = table("ascend.yaml")
    return AscendTable(
        releases=tuple(AscendRelease(**row) for row in rows["releases"]),
        chips=tuple(AscendChip(**frozen(row)) for row in rows["chips"]),
        device_nodes=tuple(rows["device_nodes"]),
        driver_files=tuple(rows["driver_files"]),
        environment_scripts=tuple(tuple(names) for names in rows["environment_scripts"]),
        source=tuple(rows["source"]),
    )


def ascend_chip(name: str | None) -> AscendChip | None:
    """The family of an NPU by the name that npu-smi shows (910B4, Ascend910B4); None when the table does not know it.

    Atlas A3 shows as "Ascend910", as the first generation did: that name alone tells nothing.
    """
    bare = re.sub(r"^Ascend[ -]?", "", name or "", flags=re.IGNORECASE)
    return next((chip for chip in ascend_table().chips if re.fullmatch(chip.pattern, bare, re.IGNORECASE)), None)
