"""Linear layers whose quantised weights lie in memory as checkpoints have them, row after row.

Each call turns one tile of rows after the other into floating point and multiplies with it, so that beside the
quantised weights there is never more than a tile of TILE_ELEMENTS values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch.nn.functional import linear

from vllm_volta import dequantize, extension

# 16 MiB in float16: large enough for cuBLAS to fill a V100, small beside a model.
TILE_ELEMENTS = 1 << 23
# The compiled kernels read 16 bytes at a time; this many rows of any width start on such a boundary.
TILE_ROWS = 16


def nvfp4_linear(
    x: torch.Tensor,
    packed: torch.Tensor,
    block_scale: torch.Tensor,
    global_scale: torch.Tensor,
    bias: torch.Tensor | None,
    widths: Sequence[int],
) -> torch.Tensor:
    """x @ weight.T + bias for an NVFP4 weight.

    x: [..., k] in float16, bfloat16 or float32, which is also the type of the weight's tiles and of the result.
    packed, block_scale: as in dequantize.nvfp4. global_scale: one multiplier for each of the logical matrices of
    `widths` rows that the layer is fused from.
    """
    columns = packed.shape[1] * 2
    compiled = extension.serves(x, "dequantize_nvfp4")

    def weight(start: int, stop: int, index: int) -> torch.Tensor:
        codes, scales, factor = packed[start:stop], block_scale[start:stop], global_scale[index : index + 1]
        if compiled:
            return torch.ops.vllm_volta.dequantize_nvfp4(_aligned(codes), scales, factor, stop - start, columns)
        return dequantize.nvfp4(codes, scales, factor, x.dtype)

    return multiply(x, fused_tiles(widths, columns), weight, bias, sum(widths))


def fp8_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    block_n: int,
    block_k: int,
) -> torch.Tensor:
    """x @ weight.T + bias for an FP8 weight.

    x: [..., k] in float16, bfloat16 or float32, which is also the type of the weight's tiles and of the result.
    weight, scale, block_n, block_k: as in dequantize.fp8.
    """
    rows, columns = weight.shape
    compiled = extension.serves(x, "dequantize_fp8")

    def tile(start: int, stop: int, _: int) -> torch.Tensor:
        codes = weight[start:stop]
        if block_n > 0:
            scales = scale[start // block_n : -(-stop // block_n)]
        else:
            scales = scale if scale.numel() == 1 else scale[start:stop]
        if compiled:
            return torch.ops.vllm_volta.dequantize_fp8(_aligned(codes), scales, block_n, block_k)
        return dequantize.fp8(codes, scales, block_n, block_k, x.dtype)

    return multiply(x, fused_tiles([rows], columns, block_n), tile, bias, rows)


def fused_tiles(widths: Sequence[int], columns: int, block_n: int = 0) -> Iterator[tuple[int, int, int]]:
    """First row, row after the last and index of the logical matrix of each tile; no tile has rows of two matrices.

    Tiles start at a multiple of TILE_ROWS rows of their matrix, and of `block_n` where that is not 0.
    """
    step = math.lcm(TILE_ROWS, block_n or 1)
    rows = max(step, TILE_ELEMENTS // columns // step * step)
    edges = itertools.accumulate(widths, initial=0)
    for index, (first, last) in enumerate(itertools.pairwise(edges)):
        for start in range(first, last, rows):
            yield start, min(start + rows, last), index


def multiply(
    x: torch.Tensor,
    tiles: Iterable[tuple[int, int, int]],
    weight: Callable[[int, int, int], torch.Tensor],
    bias: torch.Tensor | None,
    rows: int,
) -> torch.Tensor:
    """x @ weight.T + bias, where `weight` makes the rows of a tile, one tile at a time."""
    out = None
    for start, stop, index in tiles:
        if stop - start == rows:
            return linear(x, weight(start, stop, index), bias)
        if out is None:
            out = x.new_empty((*x.shape[:-1], rows))
        out[..., start:stop] = linear(x, weight(start, stop, index), None if bias is None else bias[start:stop])
    return x.new_empty((*x.shape[:-1], rows)) if out is None else out


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
