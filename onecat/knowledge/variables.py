"""Reads the table about environment variables that engines no longer read as typed records."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class RemovedVariable:
    """A variable that vLLM does not read any more. since: the first release without it."""

    name: str
    since: str
    instead: str
    source: tuple[str, ...]


@functools.cache
def removed_variables() -> tuple[RemovedVariable, ...]:
    """Every row of environment_variables.yaml."""
    return tuple(RemovedVariable(**frozen(row)) for row in table("environment_variables.yaml"))
