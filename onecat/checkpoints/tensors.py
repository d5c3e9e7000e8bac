"""Tensors as weight files hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredTensors:
    """A tensor of a weight file, or several alike: the experts of one layer are one row.

    name: with `*` for the expert's number where `count` are alike. dtype: as safetensors names it. bytes: of all.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    bytes: int

    @property
    def elements(self) -> int:
        """Elements of all `count` tensors, packed ones as they are stored."""
        return math.prod(self.shape) * self.count
