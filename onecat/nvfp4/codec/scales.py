"""Scales of NVFP4 in the two conventions, and the candidates of a search: numbers of blocks, not of weights.

Each function takes and gives float32 arrays with one element for a block and rounds exactly as the package whose
convention it is; the tests compare with both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import ml_dtypes
import numpy

from onecat.nvfp4.codec.records import E2M1_MAX, E4M3_MAX
from onecat.nvfp4.codec.rounding import to_e4m3_codes
from onecat.nvfp4.tensor_types import Array

E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
E4M3_VALUES: Array = numpy.arange(256, dtype=numpy.uint8).view(E4M3).astype(numpy.float32)
"""The values of the 256 codes; 127 and 255 are NaN."""
LARGEST_CODE = 126
TENSOR_MAX = numpy.float32(E4M3_MAX * E2M1_MAX)
_SIX, _FOUR = numpy.float32(E2M1_MAX), numpy.float32(4)


class Convention(Protocol):
    """How a package makes block scales, for one tensor with a scale of its own."""

    def block_scale(self, largest: Array, target: numpy.float32 = _SIX) -> Array:
        """The wanted scales, not yet of E4M3, with which the largest magnitudes of blocks become `target`."""
        ...

    def codes(self, block_scale: Array) -> Array:
        """The E4M3 codes (uint8) that the package writes for wanted scales."""
        ...

    def factor(self, codes: Array) -> Array:
        """What a code of 1 means in blocks with scales of these E4M3 codes."""
        ...


@dataclass(frozen=True)
class CompressedTensors:
    """calculate_qparams and _quantize of compressed-tensors 0.17.0, for a weight in float32."""

    global_scale: numpy.float32

    def block_scale(self, largest: Array, target: numpy.float32 = _SIX) -> Array:
        wanted: Array = largest / target * self.global_scale
        return wanted

    def codes(self, block_scale: Array) -> Array:
        codes = to_e4m3(block_scale)
        # A scale that rounds to zero becomes 0.125 there (_get_dtype_eps).
        codes[codes == 0] = 0x20
        return codes

    def factor(self, codes: Array) -> Array:
        factor: Array = E4M3_VALUES.take(codes) / self.global_scale
        return factor


@dataclass(frozen=True)
class ModelOpt:
    """get_weights_scaling_factor and quantize of NVFP4QTensor in nvidia-modelopt 0.47.0.

    weight_scale_2: 0 for a tensor of zeros. ModelOpt itself writes NaN block scales for such a tensor; here they are 1.
    """

    weight_scale_2: numpy.float32

    def block_scale(self, largest: Array, target: numpy.float32 = _SIX) -> Array:
        wanted: Array = largest / (target * self.weight_scale_2)
        wanted[(largest == 0) | (wanted == 0)] = 1
        return wanted

    def codes(self, block_scale: Array) -> Array:
        return to_e4m3(numpy.maximum(block_scale, E4M3_VALUES[1]))

    def factor(self, codes: Array) -> Array:
        factor: Array = E4M3_VALUES.take(codes) * self.weight_scale_2
        return factor


def to_e4m3(values: Array) -> Array:
    """The codes (uint8) of the nearest E4M3 values to non-negative ones; of two as near the even code; at most 448."""
    codes: Array = to_e4m3_codes(values.copy(), numpy.empty_like(values)).astype(numpy.uint8)
    return codes


def candidates(convention: Convention, largest: Array) -> Iterator[Array]:
    """The E4M3 codes that a search tries: first what `minmax` takes, then its neighbours and those around a scale
    with which the block's largest magnitude becomes 4 instead of 6.

    E2M1 is twice as coarse from 4 to 6 as from 2 to 4: for many a block the smaller range errs less (Cook et al., Four
    Over Six, arXiv:2512.02010). On weights of a normal distribution these six find 0.732 of the squared error of
    `minmax`; all codes from 0.8 to 1.8 times its scale find 0.729.
    """
    six = convention.block_scale(largest)
    yield convention.codes(six)
    to_six = numpy.maximum(to_e4m3(six), 1)
    yield numpy.maximum(to_six - 1, 1)
    yield numpy.minimum(to_six + 1, LARGEST_CODE)
    to_four = numpy.maximum(to_e4m3(convention.block_scale(largest, _FOUR)), 1)
    yield numpy.maximum(to_four - 1, 1)
    yield to_four
    yield numpy.minimum(to_four + 1, LARGEST_CODE)


def global_scale(largest: float) -> float:
    """See `Codec.global_scale`."""
    # torch divides a number by a tensor as the number times the tensor's reciprocal: two roundings.
    smallest = numpy.finfo(numpy.float32).tiny
    with numpy.errstate(over="ignore"):
        scale = numpy.float32(1) / numpy.float32(max(largest, smallest)) * TENSOR_MAX
    return float(scale) if numpy.isfinite(scale) else 1.0


def weight_scale_2(largest: float) -> float:
    """See `Codec.weight_scale_2`."""
    return float(numpy.float32(largest) / TENSOR_MAX)
