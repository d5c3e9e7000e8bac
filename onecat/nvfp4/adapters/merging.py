"""What an adapter does to one weight: arithmetic in float32, a run of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy

from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import Array


@dataclass(frozen=True)
class Change:
    """What an adapter does to the weight of one module; names are of tensors in the adapter's file.

    module: as the adapter calls it; stem: as the base does. In this order: `whole` takes the weight's place; the
    product of `first` and `second`, times `scaling`, is added; rows become as long as `magnitude` says; `rows` take the
    places of the rows `indices`. transposed: the base stores [in, out]. embedding: matrices are of an embedding.
    """

    module: str
    stem: str
    whole: str | None = None
    first: str | None = None
    second: str | None = None
    rank: int = 0
    scaling: float = 0.0
    embedding: bool = False
    transposed: bool = False
    magnitude: str | None = None
    rows: str | None = None
    indices: tuple[int, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all tensors that it uses."""
        named = (self.whole, self.first, self.second, self.magnitude, self.rows)
        return tuple(name for name in named if name is not None)

    @property
    def swapped(self) -> bool:
        """The product is added transposed: an embedding is stored as [in, out], too."""
        return self.transposed or self.embedding


Rows = Callable[[int, int], Array]
"""Gives rows of a weight in float32: first, and behind the last."""


class Merge:
    """A change with its tensors in memory, ready to be applied to runs of rows.

    Source: peft 0.21.2, peft/tuners/lora/layer.py (get_delta_weight of Linear and Embedding), variants.py
    (DoraLinearVariant.merge_safe), tuners/trainable_tokens/layer.py (merge). PEFT rounds products of bfloat16 matrices
    to bfloat16 before it adds them; here everything stays float32.
    """

    def __init__(self, change: Change, adapter: SourceFiles, base: Rows, chunks: Iterable[tuple[int, int]]) -> None:
        self._change = change
        self._base = base
        self._whole = None if change.whole is None else adapter.read(change.whole)
        self._left, self._right = _factors(change, adapter)
        self._rows = None if change.rows is None else _finite(adapter, change.rows)
        self._order = sorted((index, position) for position, index in enumerate(change.indices))
        self._lengths = None if change.magnitude is None else _finite(adapter, change.magnitude).reshape(-1)
        if self._lengths is not None and change.swapped:
            with numpy.errstate(divide="ignore", invalid="ignore"):
                self._lengths = self._lengths / self._column_lengths(chunks)

    def rows(self, start: int, stop: int) -> tuple[Array, Array]:
        """Rows of the base and the same rows merged, both float32 [stop - start, columns]."""
        base = self._base(start, stop)
        merged = self._sum(base, start, stop)
        if self._lengths is not None:
            if self._change.swapped:
                merged *= self._lengths
            else:
                with numpy.errstate(divide="ignore", invalid="ignore"):  # what is not finite is refused below
                    merged *= (self._lengths[start:stop] / numpy.linalg.norm(merged, axis=1))[:, None]
        if self._rows is not None:
            for index, position in self._order:
                if start <= index < stop:
                    merged[index - start] = self._rows[position]
        if not numpy.isfinite(merged).all():
            raise OnecatError(
                f"{self._change.stem}: the merged weight holds NaN or infinity",
                expected="finite values in the base and in the adapter",
                next_steps=["onecat model verify BASE"],
                code=ExitCode.NO,
            )
        return base, merged

    def _sum(self, base: Array, start: int, stop: int) -> Array:
        merged = base.copy() if self._whole is None else self._whole[start:stop].astype(numpy.float32)
        if self._left is not None and self._right is not None:
            merged += self._left[start:stop] @ self._right
        return merged

    def _column_lengths(self, chunks: Iterable[tuple[int, int]]) -> Array:
        squares: Array | float = 0.0
        for start, stop in chunks:
            squares = squares + numpy.square(self._sum(self._base(start, stop), start, stop), dtype=numpy.float64).sum(
                0
            )
        lengths: Array = numpy.sqrt(squares).astype(numpy.float32)
        return lengths


def _factors(change: Change, adapter: SourceFiles) -> tuple[Array | None, Array | None]:
    """Two matrices whose product is to be added, the scaling in the smaller one."""
    if change.first is None or change.second is None:
        return None, None
    first, second = _finite(adapter, change.first), _finite(adapter, change.second)
    left, right = (first.T, second.T) if change.swapped else (second, first)
    return numpy.ascontiguousarray(left), right * numpy.float32(change.scaling)


def _finite(adapter: SourceFiles, name: str) -> Array:
    values = adapter.read(name).astype(numpy.float32)
    if not numpy.isfinite(values).all():
        raise OnecatError(
            f"{name} of the adapter holds NaN or infinity",
            expected="finite values",
            where=str(adapter.directory / adapter.tensors[name].file),
            next_steps=["train or save the adapter again"],
            code=ExitCode.NO,
        )
    return values
