"""What differs between versions of the engine, read from versions.yaml."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Literal

from onecat.planner.memory.tables import row_of


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
    merged = row_of(Path(__file__).with_name("versions.yaml"), version)
    values = {each.name: merged[each.name] for each in fields(Rules)}
    return Rules(**values | {"padding": Fraction(values["padding"]), "all_states": tuple(values["all_states"])})
