"""What a codec takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from onecat.nvfp4.tensor_types import Array

BLOCK = 16
"""Weights along in_features that share a block scale (NVFP4)."""
E2M1_MAX = 6.0
E4M3_MAX = 448.0
"""The largest finite values (OCP Microscaling Formats 1.0; OCP 8-bit Floating Point Specification 1.0)."""

Search = Literal["minmax", "mse"]
"""How scales are chosen: from the largest magnitude, or the one of several with the least squared error."""


class Nvfp4(NamedTuple):
    """packed: uint8 [out, in / 2], of two neighbours the even column in the low four bits.

    block_scale: float8_e4m3fn [out, in / 16]; a block of zeros has the scale that compressed-tensors gives it.
    """

    packed: Array
    block_scale: Array


class ScaledCodes(NamedTuple):
    """codes: float8_e4m3fn [out, in]. scale: float32, multiplied with the codes to give the weight.

    Its shape is [ceil(out / rows), ceil(in / columns)] of the blocks, [out, 1] of channels, [1] of a whole tensor.
    """

    codes: Array
    scale: Array


class Deviation(NamedTuple):
    """How far values are from the ones they stand for, as sums, so that parts add up.

    squared_error, squared_signal: float64 sums over all elements. largest: the largest absolute error.
    """

    squared_error: float
    squared_signal: float
    largest: float
    elements: int


class Codec(Protocol):
    """One way to compute. A weight is [out, in], float32, float16 or bfloat16, in rows of memory, perhaps read-only.

    Methods raise ValueError when a weight's in_features are no multiple of a block, when it holds NaN or Inf, saying
    how many, and when codes and scales do not fit together. Neither has a code: compressed-tensors writes NaN as if it
    were a zero. They use as many threads as `threads` says; temporary memory is bounded, a few MB for each thread,
    however large the weight.
    """

    @property
    def name(self) -> str:
        """What a report calls it."""
        ...

    def largest(self, weight: Array) -> float:
        """The largest magnitude, exact; 0 for an empty weight."""
        ...

    def global_scale(self, largest: float) -> float:
        """The float32 scale that compressed-tensors stores for a tensor, or for several that share it.

        448 * 6 / largest, with its answers for 0 and for what overflows (generate_gparam of compressed-tensors 0.17.0).
        """
        ...

    def best_global_scale(self, weights: Array | Sequence[Array], search: Search) -> float:
        """The scale that one weight or several share; with `mse` the one of a few with the least squared error."""
        ...

    def nvfp4(self, weight: Array, global_scale: float, search: Search = "minmax") -> Nvfp4:
        """Codes and block scales for a scale of the whole tensor as compressed-tensors stores it.

        With `minmax` bit for bit what compressed-tensors 0.17.0 gives for the weight in float32; with `mse` the squared
        error is never larger than with `minmax`.
        """
        ...

    def weight_scale_2(self, largest: float) -> float:
        """The float32 scale that ModelOpt stores for a tensor: largest / (448 * 6)."""
        ...

    def nvfp4_modelopt(self, weight: Array, weight_scale_2: float, search: Search = "minmax") -> Nvfp4:
        """Codes and block scales as ModelOpt makes them (NVFP4QTensor of nvidia-modelopt 0.47.0); 0 means zeros."""
        ...

    def nvfp4_values(self, tensors: Nvfp4, multiplier: float, dtype: str, divisor: float = 1.0) -> Array:
        """The weight that codes mean: code * (block scale * multiplier / divisor) in float32, rounded once to `dtype`.

        multiplier: weight_scale_2 of ModelOpt; or 1 / weight_global_scale of compressed-tensors, as engines compute
        it. divisor: weight_global_scale with a multiplier of 1, for what compressed-tensors itself decompresses.
        """
        ...

    def nvfp4_deviation(self, weight: Array, tensors: Nvfp4, multiplier: float, divisor: float = 1.0) -> Deviation:
        """How far what codes mean, in float32, is from `weight`, without an array of all the values."""
        ...

    def fp8_block(self, weight: Array, block: tuple[int, int] = (128, 128)) -> ScaledCodes:
        """E4M3 codes with a scale for each block of [out, in]; blocks at the edges are smaller.

        (1, in) gives a scale for each channel, (out, in) one for the tensor. Bit for bit what compressed-tensors 0.17.0
        gives for the weight in float32.
        """
        ...

    def fp8_values(self, tensors: ScaledCodes, block: tuple[int, int] | None, dtype: str) -> Array:
        """The weight that E4M3 codes mean: code * scale in float32, rounded once to `dtype`.

        block: [out, in] of one scale; None for scales of channels or of the whole tensor.
        """
        ...

    def fp8_deviation(self, weight: Array, tensors: ScaledCodes, block: tuple[int, int] | None) -> Deviation:
        """How far what E4M3 codes mean, in float32, is from `weight`, without an array of all the values."""
        ...

    def deviation(self, weight: Array, values: Array) -> Deviation:
        """How far `values` are from `weight`, both [out, in], in float64."""
        ...
