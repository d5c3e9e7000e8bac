"""The weights of a checkpoint as numbers, however it stores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy

from onecat.nvfp4.codec import Codec
from onecat.nvfp4.conversion.matrices import matrices
from onecat.nvfp4.conversion.records import Matrix
from onecat.nvfp4.dequantisation import Original, quantised_weights
from onecat.nvfp4.dequantisation.modules import ACTIVATIONS
from onecat.nvfp4.dequantisation.weights import QuantisedWeight
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import Array

PLAIN = "plain"


class Stored(Protocol):
    """A tensor of the plain checkpoint. name: that it has there. tensor: the one with its elements, in the files.

    scheme: of quantisation, `plain` for none. bytes: that are read for it.
    """

    @property
    def name(self) -> str: ...

    @property
    def tensor(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def scheme(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    def read(self, source: SourceFiles, codec: Codec) -> Array:
        """Its values: in float32 when it is quantised, else as they are stored. Raises OnecatError, OSError."""
        ...


@dataclass(frozen=True)
class Plain:
    """A tensor as the file has it."""

    name: str
    shape: tuple[int, ...]
    bytes: int
    scheme: str = PLAIN

    @property
    def tensor(self) -> str:
        return self.name

    def read(self, source: SourceFiles, codec: Codec) -> Array:
        return source.read(self.name)


@dataclass(frozen=True)
class Quantised:
    """A weight that is stored as codes and scales."""

    name: str
    weight: QuantisedWeight
    bytes: int

    @property
    def tensor(self) -> str:
        return self.weight.reads[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape

    @property
    def scheme(self) -> str:
        return self.weight.scheme

    def read(self, source: SourceFiles, codec: Codec) -> Array:
        return self.weight.values(source, codec, "F32")


@dataclass(frozen=True)
class OfJoint:
    """A matrix of a tensor that holds all experts of a layer."""

    matrix: Matrix
    scheme: str = PLAIN

    @property
    def name(self) -> str:
        return f"{self.matrix.module}.weight"

    @property
    def tensor(self) -> str:
        return self.matrix.tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.matrix.shape

    @property
    def bytes(self) -> int:
        return self.matrix.bytes

    def read(self, source: SourceFiles, codec: Codec) -> Array:
        return self.matrix.of(source.read(self.matrix.tensor))


@dataclass(frozen=True)
class Weights:
    """What a checkpoint stores. tensors: by their names in the plain checkpoint. parts: matrices of `tensors` that hold
    all experts, by the names that they have where experts lie apart. tied: the head is the embedding."""

    original: Original
    tensors: Mapping[str, Stored]
    parts: Mapping[str, OfJoint]
    tied: bool

    @property
    def source(self) -> SourceFiles:
        return self.original.source


def read_weights(original: Original) -> Weights:
    """Look at what is stored; no weight is read. Raises OnecatError for a scheme that is not read here."""
    source = original.source
    weights = quantised_weights(original)
    modules, _ = original.gathered
    found: dict[str, Stored] = {}
    homes = {modules[stem].names[modules[stem].data or ""]: stem for stem in weights}
    belong = {name for stem in weights for name in modules[stem].names.values()}
    scales = {name for each in modules.values() for part, name in each.names.items() if part in ACTIVATIONS}
    for name, tensor in source.tensors.items():
        if name in homes:
            stem = homes[name]
            plain = stem if name == stem else f"{stem}.weight"
            size = sum(source.tensors[each].bytes for each in set(weights[stem].reads))
            found[plain] = Quantised(plain, weights[stem], size)
        elif name not in belong and name not in scales:
            found[name] = Plain(name, tensor.shape, tensor.bytes)
    joint = {} if weights else {
        f"{each.module}.weight": OfJoint(each)
        for each in matrices(original.checkpoint.architecture, original.config, source)
        if each.place is not None
    }  # fmt: skip
    return Weights(original, found, joint, original.config.get("tie_word_embeddings") is True)


def as_matrix(values: Array) -> Array:
    """Values in rows: experts below each other, a vector as one row."""
    return values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)


def to_float32(values: Array) -> Array:
    return numpy.asarray(values).astype(numpy.float32)
