"""Reads the table of what image builds cost as typed records."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from onecat.knowledge.tables import table

Range = tuple[float | None, float | None]
"""Lowest and highest; None: not known."""


@dataclass(frozen=True)
class ImageCost:
    """A base image by the beginning of its name. download, disk: bytes."""

    image: str
    download: Range
    disk: Range
    source: tuple[str, ...]


@dataclass(frozen=True)
class PackageCost:
    """What pip fetches where `word` stands in a requirements or constraints file. download: bytes."""

    word: str
    what: str
    download: Range
    source: tuple[str, ...]


@dataclass(frozen=True)
class CompileCost:
    """Compiling an engine.

    below: all architectures asked for are below this one; None: any. units: files; None: not known. cpu_seconds: of one
    unit. job_hours: of all on one job. gib_per_job: memory. how: where the numbers are from, in words.
    """

    recipe: str
    gib_per_job: float
    how: str
    source: tuple[str, ...]
    below: str | None = None
    units: int | None = None
    cpu_seconds: Range | None = None
    job_hours: Range | None = None


@dataclass(frozen=True)
class NetworkUse:
    """Instructions that fetch something: what they match, what they fetch, from where.

    instead, besides: options of a build, whose values take the place of that origin or are asked as well.
    """

    pattern: re.Pattern[str]
    what: str
    origin: str
    instead: tuple[str, ...]
    besides: tuple[str, ...]


@dataclass(frozen=True)
class BuildCosts:
    """The whole table."""

    images: tuple[ImageCost, ...]
    packages: tuple[PackageCost, ...]
    compile: tuple[CompileCost, ...]
    network: tuple[NetworkUse, ...]


@functools.cache
def build_costs() -> BuildCosts:
    """What is known about the costs of builds."""
    data = table("build_costs.yaml")
    return BuildCosts(
        images=tuple(ImageCost(**_ranges(row)) for row in data["images"]),
        packages=tuple(PackageCost(**_ranges(row)) for row in data["packages"]),
        compile=tuple(CompileCost(**_ranges(row)) for row in data["compile"]),
        network=tuple(
            NetworkUse(**{**_ranges(row), "pattern": re.compile(row["pattern"], re.DOTALL)}) for row in data["network"]
        ),
    )


def _ranges(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
