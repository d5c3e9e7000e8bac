"""Reads the table of the first releases of vLLM that serve an architecture, or weights that are stored in some way."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class FirstRelease:
    """not_before: the first release that may serve it. schemes: of weights, in `container` (None: in any)."""

    not_before: str
    source: str
    architectures: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    container: str | None = None


@functools.cache
def first_releases() -> tuple[FirstRelease, ...]:
    """Every row of architectures_since.yaml."""
    return tuple(FirstRelease(**frozen(row)) for row in table("architectures_since.yaml"))
