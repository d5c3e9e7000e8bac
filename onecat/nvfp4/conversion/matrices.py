"""The matrices of a checkpoint, each with what it is in the model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.checkpoints.architectures import Architecture
from onecat.checkpoints.architectures.naming import named
from onecat.nvfp4.conversion.records import Matrix
from onecat.nvfp4.rewriting import SourceFiles

_EXPERT = re.compile(r"\.experts\.[0-9]+(?=\.|\Z)")
WEIGHT = ".weight"


def matrices(architecture: Architecture, source: SourceFiles) -> Iterator[Matrix]:
    """All tensors of two axes and more, in the order of the files.

    One that the architecture does not have is of the kind `other`: no engine can be expected to load it.
    """
    known = {each.name: each for each in architecture.weights}
    for name, tensor in source.tensors.items():
        if len(tensor.shape) < 2:
            continue
        weight = known.get(_EXPERT.sub(".experts.*", name))
        module = name.removesuffix(WEIGHT)
        if weight is None:
            part = named(name, tensor.shape).part
            yield Matrix(module, name, tensor.dtype, tensor.shape, tensor.bytes, "other", part, None)
        else:
            yield Matrix(module, name, tensor.dtype, tensor.shape, tensor.bytes, weight.kind, weight.part, weight.layer)
