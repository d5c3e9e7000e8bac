"""Modules that engines join share one tensor scale, and it stays shared.

An update may make weights too large for the scale that the base has: a block scale would have to be above 448. The
scale could be chosen anew, but then every module of the group would be rounded anew, those too that the adapter leaves
alone. Here it is divided by a power of two instead: block scales of unchanged modules take the same factor, which E4M3
holds exactly but for the smallest, and their codes stay byte for byte. It is done only where it lowers the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy

from onecat.checkpoints.quantization.matching import FUSED
from onecat.nvfp4.adapters.merging import Change, Merge
from onecat.nvfp4.adapters.storage import StoredModule, Weight
from onecat.nvfp4.codec import BLOCK, E2M1_MAX, E4M3_MAX, Codec, Search
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array

ROUNDED_DOWN = E4M3_MAX * (1 + 1 / 28)
"""The largest block scale that still rounds to 448: halfway to what would be the next one, 480."""

_PARENTS = {part: joint for joint, parts in FUSED.items() for part in parts}


class Scales(NamedTuple):
    """halvings: the group's block scales are divided by 2 so many times. largest: magnitude of its merged weights, by
    which a conversion would choose the tensor scale."""

    halvings: int
    largest: float


@dataclass(frozen=True)
class Member:
    """A module of a group; change: None where the adapter leaves it alone."""

    stored: StoredModule
    change: Change | None


def group_of(stem: str) -> tuple[str, ...]:
    """The modules that an engine joins with this one, itself among them, by their names in the checkpoint."""
    parent, dot, last = stem.rpartition(".")
    if last not in _PARENTS:
        return (stem,)
    return tuple(f"{parent}{dot}{part}" for part in FUSED[_PARENTS[last]])


class Group:
    """NVFP4 modules with a common tensor scale. What is decided for it is found when it is first asked for."""

    def __init__(self, members: Sequence[Member], adapter: SourceFiles, codec: Codec, search: Search) -> None:
        self.members = tuple(members)
        self._adapter, self._codec, self._search = adapter, codec, search
        self._scales: Scales | None = None

    def scales(self, source: SourceFiles) -> Scales:
        """The scales of the group. Reads all its modules, once."""
        if self._scales is None:
            self._scales = self._decide(source)
        return self._scales

    def _decide(self, source: SourceFiles) -> Scales:
        largest, wanted = 0.0, 0.0
        for member in self.members:
            weight = Weight(member.stored, source, self._codec)
            merge = None if member.change is None else self._merge(member, weight)
            for start, stop in member.stored.chunks():
                found = self._codec.largest(weight.rows(start, stop) if merge is None else merge.rows(start, stop)[1])
                largest = max(largest, found)
                if merge is not None:
                    wanted = max(wanted, found / E2M1_MAX / weight.scale.multiplier)
        if wanted <= ROUNDED_DOWN:
            return Scales(0, largest)
        halvings = math.ceil(math.log2(wanted / ROUNDED_DOWN))
        return Scales(halvings if self._error(source, halvings) < self._error(source, 0) else 0, largest)

    def _error(self, source: SourceFiles, halvings: int) -> float:
        """Squared error of the whole group when its block scales are divided."""
        total = 0.0
        for member in self.members:
            weight = Weight(member.stored, source, self._codec)
            if member.change is None:
                total += _lost(weight, halvings) if halvings else 0.0
                continue
            merge, scale = self._merge(member, weight), weight.scale.divided(halvings)
            for start, stop in member.stored.chunks():
                rows = merge.rows(start, stop)[1]
                made = scale.codes(self._codec, rows, self._search)
                total += self._codec.nvfp4_deviation(rows, made, scale.multiplier).squared_error
        return total

    def _merge(self, member: Member, weight: Weight) -> Merge:
        assert member.change is not None
        return Merge(member.change, self._adapter, weight.rows, member.stored.chunks())


def divided(scales: Array, halvings: int) -> Array:
    """Block scales divided by 2 so many times, rounded to E4M3."""
    halved: Array = (scales.astype(numpy.float32) / numpy.float32(2.0**halvings)).astype(NUMPY_TYPES["F8_E4M3"])
    return halved


def _lost(weight: Weight, halvings: int) -> float:
    """Squared error of an unchanged module whose smallest block scales do not survive: at most 36 for each weight."""
    assert weight.block_scale is not None
    scales = weight.block_scale.astype(numpy.float64)
    restored = divided(weight.block_scale, halvings).astype(numpy.float64) * 2.0**halvings
    return float((numpy.square((restored - scales) * weight.scale.multiplier) * BLOCK * E2M1_MAX**2).sum())
