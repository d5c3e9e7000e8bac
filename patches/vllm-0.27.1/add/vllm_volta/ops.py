"""torch.ops.vllm_volta: linear layers with weights that stay quantised in memory.

Each call turns one tile of rows after the other into floating point and multiplies with it, so that beside the
quantised weights there is never more than a tile of TILE_ELEMENTS values. torch.compile sees one operator for a layer.
`dequantize_nvfp4` and `dequantize_fp8` are there when the compiled extension is; they serve float16 on CUDA.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch.nn.functional import linear

from vllm_volta import dequantize

EXTENSION = "vllm_volta._C"
# 16 MiB in float16: large enough for cuBLAS to fill a V100, small beside a model.
TILE_ELEMENTS = 1 << 23
# The compiled kernels read 16 bytes at a time; this many rows of any width start on such a boundary.
TILE_ROWS = 16

# The operators live as long as this object.
_LIBRARY = torch.library.Library("vllm_volta", "FRAGMENT")


def load_extension() -> str | None:
    """Load the compiled kernels if they were built; returns why they are not there, None when they are."""
    if importlib.util.find_spec(EXTENSION) is None:
        return "they were not built"
    try:
        importlib.import_module(EXTENSION)
    except ImportError as error:
        return str(error)
    _LIBRARY._register_fake("dequantize_nvfp4", _fake_dequantize_nvfp4)
    _LIBRARY._register_fake("dequantize_fp8", _fake_dequantize_fp8)
    return None


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
    edges = list(itertools.accumulate(widths, initial=0))
    tiles = [
        (start, stop, index)
        for index, (first, last) in enumerate(itertools.pairwise(edges))
        for start, stop in _tiles(first, last, columns, TILE_ROWS)
    ]
    compiled = _is_compiled(x, "dequantize_nvfp4")

    def weight(start: int, stop: int, index: int) -> torch.Tensor:
        codes, scales, factor = packed[start:stop], block_scale[start:stop], global_scale[index : index + 1]
        if compiled:
            return torch.ops.vllm_volta.dequantize_nvfp4(_aligned(codes), scales, factor, stop - start, columns)
        return dequantize.nvfp4(codes, scales, factor, x.dtype)

    return _multiply(x, ((start, stop, weight(start, stop, index)) for start, stop, index in tiles), bias, edges[-1])


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
    compiled = _is_compiled(x, "dequantize_fp8")

    def tile(start: int, stop: int) -> torch.Tensor:
        codes = weight[start:stop]
        if block_n > 0:
            scales = scale[start // block_n : -(-stop // block_n)]
        else:
            scales = scale if scale.numel() == 1 else scale[start:stop]
        if compiled:
            return torch.ops.vllm_volta.dequantize_fp8(_aligned(codes), scales, block_n, block_k)
        return dequantize.fp8(codes, scales, block_n, block_k, x.dtype)

    edges = _tiles(0, rows, columns, math.lcm(TILE_ROWS, block_n or 1))
    return _multiply(x, ((start, stop, tile(start, stop)) for start, stop in edges), bias, rows)


def _tiles(first: int, last: int, columns: int, step: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows between `first` and `last`, each of a multiple of `step` rows where there are as many."""
    rows = max(step, TILE_ELEMENTS // columns // step * step)
    for start in range(first, last, rows):
        yield start, min(start + rows, last)


def _multiply(
    x: torch.Tensor, tiles: Iterator[tuple[int, int, torch.Tensor]], bias: torch.Tensor | None, rows: int
) -> torch.Tensor:
    out = x.new_empty((*x.shape[:-1], rows))
    for start, stop, weight in tiles:
        if stop - start == rows:
            return linear(x, weight, bias)
        out[..., start:stop] = linear(x, weight, None if bias is None else bias[start:stop])
    return out


def _is_compiled(x: torch.Tensor, name: str) -> bool:
    return x.is_cuda and x.dtype == torch.float16 and hasattr(torch.ops.vllm_volta, name)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def _fake_nvfp4_linear(
    x: torch.Tensor,
    packed: torch.Tensor,
    block_scale: torch.Tensor,
    global_scale: torch.Tensor,
    bias: torch.Tensor | None,
    widths: Sequence[int],
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], packed.shape[0]))


def _fake_fp8_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    block_n: int,
    block_k: int,
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _fake_dequantize_nvfp4(
    packed: torch.Tensor, block_scale: torch.Tensor, global_scale: torch.Tensor, n: int, k: int
) -> torch.Tensor:
    return packed.new_empty((n, k), dtype=torch.float16)


def _fake_dequantize_fp8(weight: torch.Tensor, scale: torch.Tensor, block_n: int, block_k: int) -> torch.Tensor:
    return weight.new_empty(weight.shape, dtype=torch.float16)


_LIBRARY.define(
    "nvfp4_linear(Tensor x, Tensor packed, Tensor block_scale, Tensor global_scale, Tensor? bias, int[] widths)"
    " -> Tensor"
)
_LIBRARY.impl("nvfp4_linear", nvfp4_linear, "CompositeExplicitAutograd")
_LIBRARY._register_fake("nvfp4_linear", _fake_nvfp4_linear)
_LIBRARY.define("fp8_linear(Tensor x, Tensor weight, Tensor scale, Tensor? bias, int block_n, int block_k) -> Tensor")
_LIBRARY.impl("fp8_linear", fp8_linear, "CompositeExplicitAutograd")
_LIBRARY._register_fake("fp8_linear", _fake_fp8_linear)
