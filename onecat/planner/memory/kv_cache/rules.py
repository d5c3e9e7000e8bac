"""What differs between versions of the engine, read from versions.yaml."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from onecat.resources import read_table


@dataclass(frozen=True)
class Rules:
    """How one version divides the KV cache; versions.yaml says what each field means."""

    tokens: Literal["blocks", "requests"]
    windows: bool
    window_block: int | None
    padding: Fraction
    batches: bool
    states: bool
    all_states: tuple[str, ...]
    hybrid_prefixes: bool
    latent_alignment: int
    flashinfer_mla_block: int
    need: Literal["layers", "groups"]
    projected: bool
    pooled: bool
    packing: Literal["rows", "sizes", "dense"]
    null_block: bool


@functools.cache
def rules_of(version: str) -> Rules:
    """The rules of a version of vLLM: all rows up to it, later ones on top. Raises InvalidVersion for no version."""
    asked = Version(version)
    merged: dict[str, Any] = {}
    for row in _rows():
        if Version(row["since"]) <= asked:
            merged |= row
    values = {each.name: merged[each.name] for each in fields(Rules)}
    return Rules(**values | {"padding": Fraction(values["padding"]), "all_states": tuple(values["all_states"])})


@functools.cache
def _rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(read_table(Path(__file__).with_name("versions.yaml"))["versions"])
