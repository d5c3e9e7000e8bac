"""What is to be converted, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy

from onecat.checkpoints.architectures.records import Part, WeightKind
from onecat.nvfp4.codec import Deviation, Search, total
from onecat.nvfp4.tensor_types import Array

Scheme = Literal["nvfp4", "fp8-block"]
Naming = Literal["compressed-tensors", "deepseek", "modelopt"]
"""Whose names the tensors have and whose form the configuration has."""


@dataclass(frozen=True)
class Request:
    """What a person asked for.

    include: patterns of the only modules that may be converted, empty for all; ignore: patterns of those that may not.
    jobs: threads, None for one on each processor. restart, replace: as `Rewrite` has them. dry_run: write nothing.
    """

    source: Path
    target: Path
    scheme: Scheme = "nvfp4"
    naming: Naming = "compressed-tensors"
    search: Search = "minmax"
    include: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    jobs: int | None = None
    restart: bool = False
    replace: bool = False
    dry_run: bool = False


class Place(NamedTuple):
    """Where a matrix lies in a tensor that holds all experts of a layer: rows `begin` to `end` of one of them.

    transposed: the tensor has [in_features, out_features] of each expert.
    """

    expert: int
    begin: int
    end: int
    transposed: bool


class Matrix(NamedTuple):
    """A plain matrix of the source. module: its name in the result (`model.layers.0.mlp.down_proj`).

    shape: [out_features, in_features]. bytes: as the source has it. layer: of the decoder, None outside of its layers.
    place: in the tensor, None for all of it.
    """

    module: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    kind: WeightKind
    part: Part
    layer: int | None
    place: Place | None = None

    @property
    def is_matrix(self) -> bool:
        """Whether it is one matrix, and the weight of a module."""
        return len(self.shape) == 2 and (self.place is not None or self.tensor.endswith(".weight"))

    def of(self, tensor: Array) -> Array:
        """Its elements [out_features, in_features], given those of its tensor."""
        if self.place is None:
            return tensor
        expert = tensor[self.place.expert]
        if self.place.transposed:
            return numpy.ascontiguousarray(expert[:, self.place.begin : self.place.end].T)
        rows: Array = expert[self.place.begin : self.place.end]
        return rows


class Group(NamedTuple):
    """Matrices that are converted together: what an engine joins into one module. name: of that module.

    members: in the engine's order.
    """

    name: str
    members: tuple[Matrix, ...]

    @property
    def bytes(self) -> int:
        """Of all members as the source has them."""
        return sum(each.bytes for each in self.members)


class LeftAlone(NamedTuple):
    """A matrix that stays as it is, and why."""

    matrix: Matrix
    why: str


@dataclass(frozen=True)
class Selection:
    """What is converted and what is not. Embeddings, norms and such are in neither."""

    groups: tuple[Group, ...]
    left: tuple[LeftAlone, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of all modules that are converted."""
        return tuple(each.module for group in self.groups for each in group.members)


@dataclass(frozen=True)
class ConvertedModule:
    """A module of the new checkpoint. bytes_before, bytes_after: of its tensors."""

    name: str
    shape: tuple[int, ...]
    bytes_before: int
    bytes_after: int
    deviation: Deviation

    @property
    def relative_error(self) -> float:
        """Length of the error by the length of the weight, as vectors; 0 for a weight of zeros."""
        return relative_error(self.deviation)

    @property
    def sqnr(self) -> float | None:
        """Signal to quantisation noise in dB, None when there is no noise."""
        return sqnr(self.deviation)


def relative_error(deviation: Deviation) -> float:
    """Length of the error by the length of the weight; 0 for a weight of zeros."""
    if not deviation.squared_signal:
        return 0.0
    return math.sqrt(deviation.squared_error / deviation.squared_signal)


def sqnr(deviation: Deviation) -> float | None:
    """Signal to quantisation noise in dB, None when there is no noise."""
    if not deviation.squared_error or not deviation.squared_signal:
        return None
    return 10 * math.log10(deviation.squared_signal / deviation.squared_error)


@dataclass(frozen=True)
class Sizes:
    """Bytes of all tensors before and after; peak: of memory that a run is expected to take at most."""

    before: int
    after: int
    peak: int


@dataclass(frozen=True)
class Outcome:
    """What a run did, or would do (`dry_run`).

    modules: in the order of the checkpoint; empty in a dry run, `selection` tells them. quantisation: what config.json
    says of it. notes: what a person should know. reused: files of an earlier run.
    """

    request: Request
    selection: Selection
    sizes: Sizes
    quantisation: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    modules: tuple[ConvertedModule, ...] = ()
    reused: tuple[str, ...] = ()
    seconds: float = 0.0
    free: int = 0
    copied: tuple[str, ...] = field(default=())
    dry_run: bool = False

    @property
    def total(self) -> ConvertedModule | None:
        """All modules taken as one; None in a dry run."""
        if not self.modules:
            return None
        together = total(each.deviation for each in self.modules)
        before, after = (sum(getattr(each, name) for each in self.modules) for name in ("bytes_before", "bytes_after"))
        return ConvertedModule("all modules", (), before, after, together)
