"""Tables of what differs between versions of the engine: a row changes what it names from its version on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from onecat.resources import read_table


def row_of(table: Path, version: str) -> dict[str, Any]:
    """What holds for a version: all rows up to it, later ones on top. Raises InvalidVersion for no version."""
    asked = Version(version)
    merged: dict[str, Any] = {}
    for row in _rows(table):
        if Version(row["since"]) <= asked:
            merged |= row
    return merged


@functools.cache
def _rows(table: Path) -> tuple[Mapping[str, Any], ...]:
    return tuple(read_table(table)["versions"])
