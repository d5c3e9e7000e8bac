"""torch.ops.vllm_volta: linear layers with weights that stay quantised in memory.

torch.compile sees one operator for a layer, which looks at the number of tokens when it runs:

nvfp4_linear, fp8_linear               weights as in checkpoints, see row_major.py
nvfp4_panel_linear, fp8_panel_linear   weights as panels, see panels.py

For panels the compiled kernels multiply up to MAX_PANEL_TOKENS tokens at once. With more tokens, reading the weights is
no longer what takes the time: a tile of them becomes float16 in workspace, and cuBLAS multiplies with it. Where there
are no compiled kernels (the CPU, other types than float16) panels become rows again and go the way of row_major.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from vllm_volta import dequantize, panels, row_major
from vllm_volta.extension import load_extension, serves

__all__ = ["MAX_PANEL_TOKENS", "WORKSPACE_ELEMENTS", "fp8_panel_linear", "load_extension", "nvfp4_panel_linear"]

# Tokens up to which a layer's weights are read as panels, in slices of 64. Measured on an H200 (bench/kernels): with
# 128 both ways take as long, with 192 dequantise + GEMM is faster. The model of a V100 (bench/kernels/volta_model.py)
# has panels ahead for longer.
MAX_PANEL_TOKENS = 128
# The most that a tile of dequantised weights has: 64 MiB of float16. cuBLAS works at squares of 128 x 128 results: of
# 2048 tokens and a tile of 64 MiB it has 1024 at k = 4096 (8192 rows), 512 at k = 8192, 240 at k = 17408 (1920 rows),
# between 1.8 and 13 times as many as the 80 multiprocessors of a V100 or the 132 of an H200.
WORKSPACE_ELEMENTS = 1 << 25
# Tiles have a multiple of these rows (a side of those squares), and so of the rows of a group of panels.
GEMM_ROWS = 128

# The operators live as long as this object.
_LIBRARY = torch.library.Library("vllm_volta", "FRAGMENT")


def nvfp4_panel_linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    row_scale: torch.Tensor,
    bias: torch.Tensor | None,
    arrivals: torch.Tensor,
    n: int,
    k: int,
    widths: Sequence[int],
    factors: Sequence[float],
    fragments: int,
) -> torch.Tensor:
    """x @ weight.T + bias for an NVFP4 weight [n, k] in panels.

    x: [..., k] in float16, bfloat16 or float32, which is also the type of the result. codes, scales, fragments: as
    panels.nvfp4_panels makes them. row_scale: float32 [n], the global scale of each row times NVFP4_UNIT. widths: rows
    of the logical matrices that the layer is fused from; factors: the row_scale of each of them. arrivals: int32, zeros
    for each group of rows and zeros again afterwards, so two calls for one layer may not run at the same time.
    """
    if serves(x, "nvfp4_panels"):
        rows = x.reshape(-1, k)
        if rows.shape[0] <= MAX_PANEL_TOKENS:
            out = torch.ops.vllm_volta.nvfp4_panels.default(
                _readable(rows), codes, scales, row_scale, bias, arrivals, n, k, fragments
            )
        else:
            dequantize_rows = torch.ops.vllm_volta.dequantize_nvfp4_panels.default
            out = _multiply_tiles(
                rows,
                lambda first, last: dequantize_rows(codes, scales, first, last, k, fragments),
                bias,
                widths,
                factors,
            )
        return out.view(*x.shape[:-1], n)

    def weight(start: int, stop: int, _: int) -> torch.Tensor:
        packed, block_scale = panels.nvfp4_rows(codes, scales, start, stop, k, fragments)
        return dequantize.nvfp4(packed, block_scale, row_scale[start : start + 1] / panels.NVFP4_UNIT, x.dtype)

    return row_major.multiply(x, row_major.fused_tiles(widths, k), weight, bias, n)


def fp8_panel_linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    block_scale: torch.Tensor | None,
    row_scale: torch.Tensor,
    bias: torch.Tensor | None,
    arrivals: torch.Tensor,
    n: int,
    k: int,
    block_n: int,
    block_k: int,
    fragments: int,
) -> torch.Tensor:
    """x @ weight.T + bias for an FP8 weight [n, k] in panels.

    x, fragments, arrivals: as in nvfp4_panel_linear. codes: as panels.fp8_panels makes them. block_scale: float32
    [ceil(n / block_n), ceil(k / block_k)], or None with blocks of 0 x 0. row_scale: float32 [n], what each row is
    multiplied by beside that, times FP8_UNIT.
    """
    if serves(x, "fp8_panels"):
        rows = x.reshape(-1, k)
        if rows.shape[0] <= MAX_PANEL_TOKENS:
            out = torch.ops.vllm_volta.fp8_panels.default(
                _readable(rows), codes, block_scale, row_scale, bias, arrivals, n, k, block_n, block_k, fragments
            )
        else:
            dequantize_rows = torch.ops.vllm_volta.dequantize_fp8_panels.default
            out = _multiply_tiles(
                rows,
                lambda first, last: dequantize_rows(
                    codes, block_scale, row_scale, first, last, k, block_n, block_k, fragments
                ),
                bias,
                [n],
                [1.0],
            )
        return out.view(*x.shape[:-1], n)

    def weight(start: int, stop: int, _: int) -> torch.Tensor:
        values = panels.fp8_rows(codes, start, stop, k, fragments)
        scale = row_scale[start:stop] / panels.FP8_UNIT
        if block_scale is None:
            return dequantize.fp8(values, scale, 0, 0, x.dtype)
        blocks = block_scale[start // block_n : -(-stop // block_n)]
        spread = dequantize.fp8(values, blocks, block_n, block_k, torch.float32)
        return (spread * scale.reshape(-1, 1)).to(x.dtype)

    return row_major.multiply(x, row_major.fused_tiles([n], k, block_n), weight, bias, n)


def gemm_tiles(n: int, k: int) -> Iterator[tuple[int, int]]:
    """First row, and row after the last, of each tile that becomes floating point: of nearly equal length.

    A short tile at the end would leave multiprocessors without work.
    """
    most = max(GEMM_ROWS, WORKSPACE_ELEMENTS // k // GEMM_ROWS * GEMM_ROWS)
    count = -(-n // most)
    step = -(-n // (count * GEMM_ROWS)) * GEMM_ROWS
    for first in range(0, n, step):
        yield first, min(first + step, n)


def _multiply_tiles(
    rows: torch.Tensor,
    dequantised: Callable[[int, int], torch.Tensor],
    bias: torch.Tensor | None,
    widths: Sequence[int],
    factors: Sequence[float],
) -> torch.Tensor:
    """Multiply with the whole weight, of which `dequantised` makes the rows from one to another, a tile at a time."""
    n, k = sum(widths), rows.shape[1]
    out = rows.new_empty((rows.shape[0], n))
    with _sums_in_float32():
        for first, last in gemm_tiles(n, k):
            tile = dequantised(first, last)
            _multiply_tile(rows, tile, first, bias, widths, factors, out)
            del tile  # before the next is made
    return out


def _multiply_tile(
    rows: torch.Tensor,
    tile: torch.Tensor,
    first: int,
    bias: torch.Tensor | None,
    widths: Sequence[int],
    factors: Sequence[float],
    out: torch.Tensor,
) -> None:
    """Multiply with the weight's rows from `first` on; its fused matrices have `widths` rows and a factor each."""
    last = first + tile.shape[0]
    edges = itertools.pairwise(itertools.accumulate(widths, initial=0))
    for (begin, end), factor in zip(edges, factors, strict=True):
        start, stop = max(begin, first), min(end, last)
        if start < stop:
            target, weight = out[:, start:stop], tile[start - first : stop - first]
            if bias is None:
                torch.addmm(target, rows, weight.t(), beta=0, alpha=factor, out=target)
            else:
                torch.addmm(bias[start:stop], rows, weight.t(), alpha=factor, out=target)


@contextmanager
def _sums_in_float32() -> Iterator[None]:
    """cuBLAS may otherwise round the parts of a sum to float16, before `alpha` brings them into its range."""
    settings = torch.backends.cuda.matmul
    if not settings.allow_fp16_reduced_precision_reduction:
        yield
        return
    settings.allow_fp16_reduced_precision_reduction = False
    try:
        yield
    finally:
        settings.allow_fp16_reduced_precision_reduction = True


def _readable(rows: torch.Tensor) -> torch.Tensor:
    """The same values such that each row starts at a multiple of 16 bytes, as the kernels read them."""
    if rows.stride(1) == 1 and rows.stride(0) % 8 == 0 and rows.data_ptr() % 16 == 0:
        return rows
    return rows.clone(memory_format=torch.contiguous_format)


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


def _fake_nvfp4_panel_linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    row_scale: torch.Tensor,
    bias: torch.Tensor | None,
    arrivals: torch.Tensor,
    n: int,
    k: int,
    widths: Sequence[int],
    factors: Sequence[float],
    fragments: int,
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], n))


def _fake_fp8_panel_linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    block_scale: torch.Tensor | None,
    row_scale: torch.Tensor,
    bias: torch.Tensor | None,
    arrivals: torch.Tensor,
    n: int,
    k: int,
    block_n: int,
    block_k: int,
    fragments: int,
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], n))


for _schema, _function, _fake in (
    (
        "nvfp4_linear(Tensor x, Tensor packed, Tensor block_scale, Tensor global_scale, Tensor? bias, int[] widths)"
        " -> Tensor",
        row_major.nvfp4_linear,
        _fake_nvfp4_linear,
    ),
    (
        "fp8_linear(Tensor x, Tensor weight, Tensor scale, Tensor? bias, int block_n, int block_k) -> Tensor",
        row_major.fp8_linear,
        _fake_fp8_linear,
    ),
    (
        "nvfp4_panel_linear(Tensor x, Tensor codes, Tensor scales, Tensor row_scale, Tensor? bias, Tensor arrivals,"
        " int n, int k, int[] widths, float[] factors, int fragments) -> Tensor",
        nvfp4_panel_linear,
        _fake_nvfp4_panel_linear,
    ),
    (
        "fp8_panel_linear(Tensor x, Tensor codes, Tensor? block_scale, Tensor row_scale, Tensor? bias, Tensor arrivals,"
        " int n, int k, int block_n, int block_k, int fragments) -> Tensor",
        fp8_panel_linear,
        _fake_fp8_panel_linear,
    ),
):
    _name = _LIBRARY.define(_schema)
    _LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")
    _LIBRARY._register_fake(_name, _fake)
