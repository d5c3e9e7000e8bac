"""What differs between versions of the engine, read from versions.yaml."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from onecat.planner.memory.tables import row_of


@dataclass(frozen=True)
class Behaviour:
    """How one version divides memory; versions.yaml says what each field means."""

    utilization: float
    engine: Literal["v0", "v1"]
    v1_capability: int
    v2_always: bool
    v2_dense: bool
    v2_architectures: tuple[str, ...]
    batch_large: tuple[int, int]
    batch_small: tuple[int, int]
    batch_largest: tuple[int, int] | None
    a100_is_small: bool
    long_chunk: int
    sampler: Literal["sort", "triton"]
    communication_inside: bool
    growth_only: bool
    persistent_inside: bool
    graphs_inside: bool
    v2_graphs_inside: bool
    moe_chunk: int
    mxfp4_rounding: tuple[int, int]
    mxfp4_triton_columns: int


@functools.cache
def behaviour_of(version: str) -> Behaviour:
    """How a version of vLLM behaves: all rows up to it, later ones on top. Raises InvalidVersion for no version."""
    merged = row_of(Path(__file__).with_name("versions.yaml"), version)
    names = {each.name for each in fields(Behaviour)}
    return Behaviour(**{name: _frozen(value) for name, value in merged.items() if name in names})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
