"""Reads the table about releases of operating systems as typed records."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class EndOfLife:
    """The last month in which a release gets free updates, as 2025-05. id, version: as in os-release."""

    id: str
    version: str
    month: str
    source: tuple[str, ...]


def end_of_life(id: str, version: str) -> EndOfLife | None:
    """The end of life of a release, or None when the table does not know it."""
    return next((each for each in ends_of_life() if (each.id, each.version) == (id, version)), None)


@functools.cache
def ends_of_life() -> tuple[EndOfLife, ...]:
    """Every row of operating_systems.yaml."""
    return tuple(EndOfLife(**frozen(row)) for row in table("operating_systems.yaml"))
