"""Ways to store a matrix: what fits, which tensors it becomes, and how they are made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from onecat.nvfp4.codec import Deviation
from onecat.nvfp4.conversion.records import Group, Matrix
from onecat.nvfp4.rewriting import Contents, Made, SourceFiles, Step
from onecat.nvfp4.tensor_types import Array


class Encoded(NamedTuple):
    """arrays: the contents of the tensors of `Format.made`. deviation: of what they mean from the weight."""

    arrays: tuple[Array, ...]
    deviation: Deviation


class Format(Protocol):
    """One way to store matrices, with all that a run has chosen."""

    @property
    def container(self) -> str:
        """As the configuration names it: `compressed-tensors`, `fp8`, `modelopt`."""
        ...

    def unfit(self, matrix: Matrix) -> str | None:
        """Why a matrix cannot be stored so; None when it can."""
        ...

    def unfit_group(self, group: Group) -> str | None:
        """Why an engine could not join matrices that are each stored so; None when it can."""
        ...

    def made(self, matrix: Matrix) -> tuple[Made, ...]:
        """The tensors that a matrix becomes."""
        ...

    def largest(self, weight: Array) -> float:
        """The largest magnitude, 0 where nothing is shared. Raises ValueError for NaN and Inf."""
        ...

    def shared(self, weights: Sequence[Array], largest: float) -> float:
        """The scale that all members of a group have. largest: of all of them."""
        ...

    def encode(self, weight: Array, shared: float) -> Encoded:
        """The contents of `made`. Raises ValueError for NaN and Inf."""
        ...

    def documents(self, config: dict[str, Any], ignore: Sequence[str]) -> dict[str, Any]:
        """config.json, and what stands beside it, by file name, of a checkpoint that leaves these modules alone."""
        ...


def step(name: str, groups: Sequence[Group], form: Format) -> Step:
    """The step that makes all tensors of some groups, whose own tensors are in memory together, and codes one by one.

    What it measures is named `MODULE/NAME`. Its `make` raises ValueError for NaN and Inf, naming the tensor.
    """
    reads = tuple(dict.fromkeys(each.tensor for group in groups for each in group.members))

    def make(source: SourceFiles) -> Contents:
        measured: dict[str, float] = {}
        return Contents(_arrays(groups, form, {each: source.read(each) for each in reads}, measured), measured)

    outputs = tuple(made for group in groups for each in group.members for made in form.made(each))
    return Step(name, outputs, reads, make)


def _arrays(
    groups: Sequence[Group], form: Format, tensors: Mapping[str, Array], measured: dict[str, float]
) -> Iterator[Array]:
    for group in groups:
        weights = [each.of(tensors[each.tensor]) for each in group.members]
        largest = 0.0
        for each, weight in zip(group.members, weights, strict=True):
            with _naming(each):
                largest = max(largest, form.largest(weight))
        shared = form.shared(weights, largest)
        for each, weight in zip(group.members, weights, strict=True):
            with _naming(each):
                encoded = form.encode(weight, shared)
            measured |= {f"{each.module}/{name}": float(value) for name, value in encoded.deviation._asdict().items()}
            yield from encoded.arrays


@contextlib.contextmanager
def _naming(matrix: Matrix) -> Iterator[None]:
    """Says of which tensor something is wrong."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{matrix.tensor}: {error}") from error
