"""Reads the YAML tables beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onecat.knowledge


def table(name: str) -> Any:
    """The content of a table by its file name, as gpus.yaml."""
    import yaml

    # libyaml's loader reads the same ten times faster; PyYAML is also built without it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (Path(onecat.knowledge.__path__[0]) / name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=loader)  # noqa: S506 - both are the safe loader


def frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its lists as tuples, as the fields of a frozen record."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
