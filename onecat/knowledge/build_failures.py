"""Reads the table of known failures of image builds as typed records."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from onecat.knowledge.tables import table


@dataclass(frozen=True)
class BuildFailure:
    """One known failure.

    patterns: searched in single lines of the builder's output. without: a line with this is no evidence.
    cause, fix: texts with {names} of the patterns' groups and of the build.
    """

    id: str
    patterns: tuple[re.Pattern[str], ...]
    cause: str
    fix: tuple[str, ...]
    source: tuple[str, ...]
    without: re.Pattern[str] | None = None


@functools.cache
def build_failures() -> tuple[BuildFailure, ...]:
    """Every known failure, causes before their consequences."""
    return tuple(
        BuildFailure(
            id=row["id"],
            patterns=tuple(map(re.compile, row["patterns"])),
            cause=row["cause"],
            fix=tuple(row["fix"]),
            source=tuple(row["source"]),
            without=re.compile(row["except"]) if "except" in row else None,
        )
        for row in table("build_failures.yaml")["failures"]
    )
