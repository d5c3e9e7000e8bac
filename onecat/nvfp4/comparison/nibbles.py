"""Whether the nibbles of a packed checkpoint are in order, told from the checkpoint alone.

Nothing in a file says which of two neighbours lies in the low four bits; read wrongly, columns 2 j and 2 j + 1 of all
packed matrices are exchanged. But the columns of q, k, v, gate and up are the channels of the residual stream, and so
are the columns of the embedding and of the head and the rows of o and down, which packing leaves in their places.
How alike channels are (the cosine of two channels' vectors, for all pairs) is much the same in all of them in a trained
model. So the cosines of the packed side are correlated with those of the other side as they are read, and with each
pair of columns exchanged: Mantel's test of two matrices of likeness (N. Mantel, 1967, Cancer Research 27:209-220).
Only one of both orders can fit; random weights fit in neither, and then nothing is said.

Measured, with 256 channels: onecat's small model has a correlation of 0.75 as it is and of -0.004 exchanged, 150 and 1
standard deviations of what random orders give; one layer alone 30; 300 pairs of random matrices (normal, heavy-tailed,
of low rank, with columns of lognormal sizes, with neighbours alike) at most 3.4. Weights that were rotated to have no
outliers may show nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy

from onecat.nvfp4.codec import BLOCK, Codec, Nvfp4
from onecat.nvfp4.dequantisation import Original, quantised_weights
from onecat.nvfp4.dequantisation.nvfp4_weights import Nvfp4Weight
from onecat.nvfp4.dequantisation.weights import QuantisedWeight
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import FLOATS, NUMPY_TYPES, Array

CHANNELS = 256
"""The first ones, of the thousands that large models have: their cosines are 32640 numbers."""
ROWS = 1024
"""Of a packed matrix, an embedding or a head, the first ones."""
MOST_BYTES = 128 << 20
"""Read for each of the two sides."""
RANDOM_ORDERS = 32
LEAST = 8.0
"""Standard deviations of random orders from which an order is taken as seen; the other one must stay below a third."""
FEWEST_PAIRS = 1000
"""Pairs of channels below which nothing is said."""

_READS_STREAM = re.compile(r"\.(?:q_proj|k_proj|v_proj|qkv_proj|gate_proj|up_proj|gate_up_proj|q_a_proj|"
                           r"kv_a_proj_with_mqa|in_proj_qkvz?|in_proj_z|w1|w3)$")  # fmt: skip
_WRITES_STREAM = re.compile(r"\.(?:o_proj|out_proj|down_proj|w2)$")
_OUTSIDE = re.compile(r"(?:^|\.)(?:embed_tokens|lm_head)\.weight$")


@dataclass(frozen=True)
class NibbleOrder:
    """verdict: `unseen` when the weights do not tell. strength: of the right order, and exchanged: of the other, in
    standard deviations of random orders. tensors: that were read."""

    verdict: Literal["right", "swapped", "unseen"]
    strength: float = 0.0
    exchanged: float = 0.0
    tensors: int = 0


def nibble_order(original: Original, codec: Codec) -> NibbleOrder | None:
    """Look at some of the weights; None for a checkpoint without packed matrices. At most 256 MB are read.

    Raises OnecatError for weights that cannot be read, OSError.
    """
    weights = quantised_weights(original)
    packed = {stem: each for stem, each in weights.items() if isinstance(each, Nvfp4Weight)}
    if not packed:
        return None
    width = _width(packed)
    if width < BLOCK:
        return NibbleOrder("unseen")
    channels = min(width, CHANNELS) // 2 * 2
    source = original.source
    inner = _cosines(_readers(source, packed, width, channels, codec), channels)
    outer = _cosines(_writers(source, weights, width, channels, codec), channels)
    if inner is None or outer is None:
        return NibbleOrder("unseen")
    return judge(inner.matrix, outer.matrix, inner.tensors + outer.tensors)


def judge(packed: Array, other: Array, tensors: int = 0) -> NibbleOrder:
    """Compare two matrices of cosines [channels, channels], the first from packed columns."""
    order = numpy.arange(len(packed))
    pair = order // 2
    chosen = numpy.triu(pair[:, None] != pair[None, :])
    if int(chosen.sum()) < FEWEST_PAIRS:
        return NibbleOrder("unseen", tensors=tensors)
    fixed = _standard(other[chosen])

    def fit(those: Array) -> float:
        # Not `@`: BLAS would start threads for each, which wait for each other on a busy machine.
        return float(numpy.einsum("i,i->", _standard(packed[numpy.ix_(those, those)][chosen]), fixed)) / fixed.size

    random = numpy.random.default_rng(0)
    by_chance = numpy.array([fit(random.permutation(order)) for _ in range(RANDOM_ORDERS)])
    spread = float(by_chance.std())
    if not math.isfinite(spread) or spread == 0:
        return NibbleOrder("unseen", tensors=tensors)
    right, exchanged = ((fit(each) - float(by_chance.mean())) / spread for each in (order, order ^ 1))
    verdict: Literal["right", "swapped", "unseen"] = "unseen"
    if abs(right) > LEAST and abs(exchanged) < abs(right) / 3:
        verdict = "right"
    elif abs(exchanged) > LEAST and abs(right) < abs(exchanged) / 3:
        verdict = "swapped"
    return NibbleOrder(verdict, right, exchanged, tensors)


def _standard(values: Array) -> Array:
    spread = values.std()
    standard: Array = (values - values.mean()) / spread if spread else numpy.full_like(values, numpy.nan)
    return standard


@dataclass(frozen=True)
class _Cosines:
    matrix: Array
    tensors: int


def _cosines(parts: Iterator[Array], channels: int) -> _Cosines | None:
    """The mean of the cosines of channels in some matrices [any, channels]; None without any."""
    total, count = numpy.zeros((channels, channels)), 0
    for each in parts:
        found = (each.T @ each).astype(numpy.float64)
        lengths = numpy.sqrt(numpy.diag(found))
        if not numpy.isfinite(found).all():
            continue
        with numpy.errstate(divide="ignore", invalid="ignore"):
            total += numpy.nan_to_num(found / lengths / lengths[:, None])
        count += 1
    return _Cosines(total / count, count) if count else None


def _width(packed: dict[str, Nvfp4Weight]) -> int:
    """Channels of the residual stream: the columns of most matrices that read it."""
    widths = [each.shape[-1] for stem, each in packed.items() if _READS_STREAM.search(stem)]
    return max(set(widths), key=widths.count) if widths else 0


def _readers(
    source: SourceFiles, packed: dict[str, Nvfp4Weight], width: int, channels: int, codec: Codec
) -> Iterator[Array]:
    """Rows of packed matrices whose columns are channels, of layers all over the model."""
    found = [each for stem, each in packed.items()
             if _READS_STREAM.search(stem) and each.shape[1:] == (width,) and each.input_factor is None]  # fmt: skip
    for each in _spread(found, width // 2):
        yield _rows(source, each, 0, min(each.shape[0], ROWS), codec)[:, :channels]


def _writers(
    source: SourceFiles, weights: dict[str, QuantisedWeight], width: int, channels: int, codec: Codec
) -> Iterator[Array]:
    """Matrices whose channels packing leaves in their places, turned so that they are columns."""
    plain = [name for name, each in source.tensors.items()
             if _OUTSIDE.search(name) and each.dtype in FLOATS and each.shape[1:] == (width,)]  # fmt: skip
    for name in plain:
        tensor = source.tensors[name]
        rows = min(tensor.shape[0], ROWS)
        bits = source.piece(name, 0, tensor.bytes // tensor.shape[0] * rows)
        yield bits.view(NUMPY_TYPES[tensor.dtype]).reshape(rows, width)[:, :channels].astype(numpy.float32)
    found = [each for stem, each in weights.items()
             if _WRITES_STREAM.search(stem) and isinstance(each, Nvfp4Weight) and len(each.shape) == 2
             and each.shape[0] == width]  # fmt: skip
    for weight in _spread(found, max((each.shape[1] for each in found), default=0) * channels // (2 * ROWS)):
        yield numpy.ascontiguousarray(_rows(source, weight, 0, channels, codec).T)


def _spread(found: list[Nvfp4Weight], row_bytes: int) -> list[Nvfp4Weight]:
    """As many as may be read, from everywhere. row_bytes: of ROWS rows, for each of these."""
    most = max(1, MOST_BYTES // max(1, row_bytes * ROWS))
    return found[:: -(-len(found) // most)] if found else []


def _rows(source: SourceFiles, weight: Nvfp4Weight, begin: int, end: int, codec: Codec) -> Array:
    """Some rows, but for the size of the whole tensor, which no cosine depends on."""
    into = weight.shape[1]
    packed = source.piece(weight.packed, begin * into // 2, end * into // 2).reshape(-1, into // 2)
    scale = source.piece(weight.block_scale, begin * into // BLOCK, end * into // BLOCK).reshape(-1, into // BLOCK)
    return codec.nvfp4_values(Nvfp4(packed, scale.view(NUMPY_TYPES["F8_E4M3"])), 1.0, "F32")
