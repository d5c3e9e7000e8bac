"""Tensors that are plain already: copied, or rounded to the type of the new checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from onecat.nvfp4.dequantisation.targets import PLAIN_DTYPES
from onecat.nvfp4.dequantisation.weights import too_large
from onecat.nvfp4.rewriting import Made, SourceFiles, SourceTensor, Step
from onecat.nvfp4.rewriting.records import Contents
from onecat.nvfp4.tensor_types import FLOATS, NUMPY_TYPES

OF_CODES = frozenset({"U8", "I8", "F4"})
"""Types that hold codes and no weights, as all that begin with F8 and F6 do."""


def holds_codes(dtype: str) -> bool:
    """Whether tensors of a type, as safetensors names it, mean nothing without scales."""
    return dtype in OF_CODES or dtype.startswith(("F8", "F6"))


@dataclass(frozen=True)
class Types:
    """own: of the model. wanted: of the plain checkpoint; both as config.json names them."""

    own: str
    wanted: str

    def of(self, tensor: SourceTensor) -> str:
        """The type that a plain tensor gets: what is wider than the model's own type was kept so, and stays."""
        wanted, own = PLAIN_DTYPES[self.wanted], PLAIN_DTYPES[self.own]
        if tensor.dtype not in FLOATS or (tensor.dtype == "F32" and own != "F32"):
            return tensor.dtype
        return wanted


def keep(name: str, tensor: SourceTensor, dtype: str) -> Step:
    """The step that takes a tensor along in `dtype`, byte for byte where it has that type.

    The step raises OnecatError when a number is too large for float16.
    """
    module = name.removesuffix(".weight")
    made = (Made(name, dtype, tensor.shape),)
    if dtype == tensor.dtype:
        return Step(module, made, (name,))

    def make(source: SourceFiles) -> Contents:
        stored = source.read(name)
        with numpy.errstate(over="ignore"):
            values = stored.astype(NUMPY_TYPES[dtype])
        if dtype == "F16" and (count := int((numpy.isinf(values) & numpy.isfinite(stored)).sum())):
            raise too_large(module, count, values.size)
        return Contents([values])

    return Step(module, made, (name,), make)
