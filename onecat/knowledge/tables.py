"""Reads the YAML tables beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onecat.knowledge
from onecat.resources import read_table


def table(name: str) -> Any:
    """The content of a table by its file name, as gpus.yaml."""
    return read_table(Path(onecat.knowledge.__path__[0]) / name)


def frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its lists as tuples, as the fields of a frozen record."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
