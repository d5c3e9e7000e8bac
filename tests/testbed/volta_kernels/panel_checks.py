"""Weights as panels, and the layers that keep them so, against csrc/panels.h and against weights that lie in rows.

Run by checks.py, in whose folder the engine's interpreter finds both.
"""

from __future__ import annotations

import itertools
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CHECKS: dict[str, Callable[[], None]] = {}
QUAD_PAIRS, OCTETS = 0, 1
# csrc/panels.h: what the bits of each half of a word are, from the highest to the lowest.
NVFP4_BITS = "s0 s2 s3 s1 e0 e0 m0 e1 e1 m1 e2 e2 m2 e3 e3 m3"
FP8_BITS = "s0 s1 e0 e0 e0 e0 m0 m0 m0 e1 e1 e1 e1 m1 m1 m1"
SHAPES = ((1, 16), (31, 80), (33, 64), (64, 128), (100, 1040), (4120, 48))


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


# ---------------------------------------------------------------- the layout


@check
def panels_lie_in_memory_as_the_header_says() -> None:
    """Each bit of some panels, by a slow reading of the header that shares no line with panels.py."""
    from checks import random_nvfp4  # type: ignore[import-not-found]
    from vllm_volta import panels

    for fragments, (rows, columns) in itertools.product((QUAD_PAIRS, OCTETS), ((33, 80), (64, 128), (7, 16))):
        packed, block_scale, _ = random_nvfp4(rows, columns, generator(11))
        weight = fp8_codes(rows, columns, generator(12))
        codes, scales = panels.nvfp4_panels(packed, block_scale, fragments)
        fp8 = panels.fp8_panels(weight, fragments)
        size = -(-rows // 32), -(-columns // 64)
        assert (codes.shape, scales.shape, fp8.shape) == ((*size, 1024), (*size, 128), (*size, 2048))

        nibbles = [[(byte >> shift) & 15 for byte in row for shift in (0, 4)] for row in packed.tolist()]
        bytes_of = weight.view(packed.dtype).tolist()
        scale_bytes = block_scale.view(packed.dtype).tolist()
        for group, panel in itertools.product(*map(range, size)):
            assert codes[group, panel].tolist() == nvfp4_panel(nibbles, group, panel, fragments)
            assert fp8[group, panel].tolist() == fp8_panel(bytes_of, group, panel, fragments)
            assert scales[group, panel].tolist() == scale_panel(scale_bytes, group, panel, fragments)


def place(lane: int, step: int, pair: int, fragments: int) -> tuple[int, int]:
    """Row of the group and first column of the panel of a pair of weights."""
    if fragments == QUAD_PAIRS:
        return 8 * (lane // 4 % 4) + 4 * (lane // 16) + lane % 4, 16 * step + 2 * pair
    row = lane // 4 + 8 * (pair % 2 + 2 * (pair // 4))
    return row, 16 * (lane % 4) + 4 * step + 2 * (pair // 2 % 2)


def nvfp4_panel(weight: list[list[int]], group: int, panel: int, fragments: int) -> list[int]:
    found = [0] * 1024
    for lane, step, word, half in itertools.product(range(32), range(4), range(2), range(2)):
        pairs = (place(lane, step, 4 * word + index, fragments) for index in range(4))
        codes = [at(weight, 32 * group + row, 64 * panel + column + half) for row, column in pairs]
        start = 512 * (step // 2) + 16 * lane + 4 * (2 * (step % 2) + word) + 2 * half
        found[start : start + 2] = half_word(codes, NVFP4_BITS, 4)
    return found


def fp8_panel(weight: list[list[int]], group: int, panel: int, fragments: int) -> list[int]:
    found = [0] * 2048
    for lane, step, word, half in itertools.product(range(32), range(4), range(4), range(2)):
        pairs = (place(lane, step, 2 * word + index, fragments) for index in range(2))
        codes = [at(weight, 32 * group + row, 64 * panel + column + half) for row, column in pairs]
        start = 512 * step + 16 * lane + 4 * word + 2 * half
        found[start : start + 2] = half_word(codes, FP8_BITS, 8)
    return found


def scale_panel(scales: list[list[int]], group: int, panel: int, fragments: int) -> list[int]:
    found = []
    for lane, number in itertools.product(range(32), range(4)):
        if fragments == QUAD_PAIRS:
            row, block = place(lane, 0, 0, fragments)[0], number
        else:
            row, block = lane // 4 + 8 * number, lane % 4
        found.append(at(scales, 32 * group + row, 4 * panel + block))
    return found


def at(table: list[list[int]], row: int, column: int) -> int:
    return table[row][column] if row < len(table) and column < len(table[0]) else 0


def half_word(codes: list[int], bits: str, width: int) -> list[int]:
    """The two bytes of a half, the lower first: of each code its bits from the highest on, where `bits` names it."""
    taken = [f"{code:0{width}b}" for code in codes]
    value = ""
    for name in bits.split():
        index = int(name[1])
        value, taken[index] = value + taken[index][0], taken[index][1:]
    assert not any(taken)
    return [int(value[8:], 2), int(value[:8], 2)]


@check
def panels_become_the_rows_that_they_were_made_of() -> None:
    """Whole, and any range of rows; slices of rows when they are made change nothing."""
    import torch
    from checks import random_nvfp4
    from vllm_volta import panels

    kept = panels.SLICE_ELEMENTS
    try:
        for fragments, (rows, columns) in itertools.product((QUAD_PAIRS, OCTETS), SHAPES):
            packed, block_scale, _ = random_nvfp4(rows, columns, generator(13))
            weight = fp8_codes(rows, columns, generator(14))
            made = []
            for panels.SLICE_ELEMENTS in (1, 40 * columns, kept):
                made.append(
                    (*panels.nvfp4_panels(packed, block_scale, fragments), panels.fp8_panels(weight, fragments))
                )
            for several in zip(*made, strict=True):
                assert all(torch.equal(each, several[0]) for each in several)
            codes, scales, fp8 = made[0]
            for first, last in ((0, rows), (rows - 1, rows), (rows // 3, rows // 2 + 1)):
                found = panels.nvfp4_rows(codes, scales, first, last, columns, fragments)
                same_bytes(found[0], packed[first:last])
                same_bytes(found[1], block_scale[first:last])
                same_bytes(panels.fp8_rows(fp8, first, last, columns, fragments), weight[first:last])
            transposed = weight.t().contiguous().t()
            assert torch.equal(panels.fp8_panels(transposed, fragments), fp8), "as vLLM keeps weights without blocks"
    finally:
        panels.SLICE_ELEMENTS = kept


@check
def making_panels_takes_the_memory_of_a_slice() -> None:
    """No tensor on the way, beside the panels themselves, has more than 8 bytes for a weight of a slice."""
    import torch
    from checks import random_nvfp4
    from torch.utils._python_dispatch import TorchDispatchMode
    from vllm_volta import panels

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            made = function(*arguments, **(options or {}))
            if isinstance(made, torch.Tensor):
                storages.append((made.untyped_storage().data_ptr(), made.untyped_storage().nbytes()))
            return made

    rows, columns = 2048, 512
    packed, block_scale, _ = random_nvfp4(rows, columns, generator(15))
    weight = fp8_codes(rows, columns, generator(16))
    kept, panels.SLICE_ELEMENTS = panels.SLICE_ELEMENTS, 64 * columns
    storages: list[tuple[int, int]] = []
    try:
        with Sizes():
            results = (*panels.nvfp4_panels(packed, block_scale, QUAD_PAIRS), panels.fp8_panels(weight, OCTETS))
    finally:
        panels.SLICE_ELEMENTS = kept
    given = {each.untyped_storage().data_ptr() for each in (packed, block_scale, weight, *results)}
    largest = max(size for pointer, size in storages if pointer not in given)
    assert 0 < largest <= 8 * 64 * columns, largest


@check
def negative_block_scales_change_sides_and_no_value() -> None:
    import torch
    from checks import all_scales, same_bits
    from vllm_volta import dequantize, panels

    packed, scales = all_scales()
    numbers = (scales.view(torch.uint8) & 0x7F) != 0x7F
    scales = torch.where(numbers, scales.view(torch.uint8), 0x80).view(torch.float8_e4m3fn)
    assert (scales.float() < 0).sum() > 100
    factor = torch.tensor([0.0123])
    for fragments in (QUAD_PAIRS, OCTETS):
        made = panels.nvfp4_panels(packed, scales, fragments)
        assert made[1].max() < 0x7F, "all scales in panels are positive numbers"
        found = panels.nvfp4_rows(*made, 0, 64, 64, fragments)
        expected = dequantize.nvfp4(packed, scales, factor, torch.float32)
        same_bits(dequantize.nvfp4(*found, factor, torch.float32), expected)


@check
def what_is_not_a_number_has_no_panels() -> None:
    import torch
    from checks import refused
    from vllm_volta import panels

    for code in (0x7F, 0xFF):
        scales = torch.zeros(40, 5, dtype=torch.uint8)
        scales[39, 4] = code
        packed = torch.zeros(40, 40, dtype=torch.uint8)
        refused(lambda s=scales, p=packed: panels.nvfp4_panels(p, s.view(torch.float8_e4m3fn), OCTETS), "not numbers")
        weight = torch.zeros(40, 80, dtype=torch.uint8)
        weight[39, 79] = code
        refused(lambda w=weight: panels.fp8_panels(w.view(torch.float8_e4m3fn), QUAD_PAIRS), "not numbers")


# ---------------------------------------------------------------- operators


@check
def nvfp4_panels_give_the_bits_of_rows() -> None:
    """On the CPU: any type, number of tokens and bias; one tile and many; fused matrices with scales of their own."""
    import torch
    from checks import activations, random_nvfp4, same_bits, shapes
    from vllm_volta import row_major

    random = generator(17)
    for fragments, (dtype, rows, columns, tokens, bias) in itertools.product((QUAD_PAIRS, OCTETS), shapes()):
        packed, block_scale, _ = random_nvfp4(rows, columns, random)
        block_scale = signed(block_scale, random)
        x, b = activations(tokens, columns, dtype, random), bias and torch.randn(rows, generator=random).to(dtype)
        for widths in ([rows], *([[rows - rows // 3 - 1, rows // 3, 1]] if rows > 3 else [])):
            factors = torch.rand(len(widths), generator=random) * 1e-3
            arguments = nvfp4_arguments(packed, block_scale, widths, factors, fragments)
            for tile in (1, 1 << 23):
                with replaced(row_major, "TILE_ELEMENTS", tile):
                    expected = torch.ops.vllm_volta.nvfp4_linear(x, packed, block_scale, factors, b, widths)
                    found = torch.ops.vllm_volta.nvfp4_panel_linear(x, *arguments(b))
                same_bits(found, expected)


@check
def fp8_panels_give_the_bits_of_rows() -> None:
    import torch
    from checks import activations, same_bits, shapes
    from vllm_volta import row_major

    random = generator(18)
    for fragments, (dtype, rows, columns, tokens, bias) in itertools.product((QUAD_PAIRS, OCTETS), shapes()):
        weight = fp8_codes(rows, columns, random)
        x, b = activations(tokens, columns, dtype, random), bias and torch.randn(rows, generator=random).to(dtype)
        for block_n, block_k in ((128, 128), (32, 64), (0, 0)):
            shape = (-(-rows // block_n), -(-columns // block_k)) if block_n else (rows, 1)
            scale = torch.randn(shape, generator=random) * 1e-2
            arguments = fp8_arguments(weight, scale, block_n, block_k, fragments)
            for tile in (1, 1 << 23):
                with replaced(row_major, "TILE_ELEMENTS", tile):
                    expected = torch.ops.vllm_volta.fp8_linear(x, weight, scale, b, block_n, block_k)
                    found = torch.ops.vllm_volta.fp8_panel_linear(x, *arguments(b))
                same_bits(found, expected)


@check
def compilers_see_one_operator_for_a_layer_of_panels() -> None:
    """Two layers by the same code, whose global scales differ: as the blocks of a model."""
    import torch
    from checks import activations, random_nvfp4

    random, ops = generator(19), torch.ops.vllm_volta
    layers = []
    for factors in ([0.01, 0.02], [0.03, 0.07]):
        packed, block_scale, _ = random_nvfp4(48, 32, random)
        nvfp4 = nvfp4_arguments(packed, block_scale, [32, 16], torch.tensor(factors), OCTETS)
        scale = torch.rand(2, 1, generator=random)
        fp8 = fp8_arguments(fp8_codes(48, 32, random), scale, 32, 64, QUAD_PAIRS)
        rows = fp8_arguments(fp8_codes(48, 32, random), torch.rand(48, generator=random), 0, 0, QUAD_PAIRS)
        layers.append((nvfp4, fp8, rows))
    for tokens in ((3,), (2, 3), (0,), (1,)):
        for dtype in (torch.float32, torch.float16):
            x = activations(tokens, 32, dtype, random)
            for arguments in (layers[0][0](None), layers[0][0](torch.rand(48).to(dtype))):
                torch.library.opcheck(ops.nvfp4_panel_linear.default, (x, *arguments))
            for arguments in (layers[0][1](None), layers[0][2](torch.rand(48).to(dtype))):
                torch.library.opcheck(ops.fp8_panel_linear.default, (x, *arguments))

    def apply(x: torch.Tensor, layer: tuple[Any, ...]) -> torch.Tensor:
        nvfp4, fp8, rows = layer
        return sum(
            [
                ops.nvfp4_panel_linear(x, *nvfp4(None)),
                ops.fp8_panel_linear(x, *fp8(None)),
                ops.fp8_panel_linear(x, *rows(None)),
            ]
        )

    compiled = torch.compile(apply, fullgraph=True, dynamic=True, backend="aot_eager")
    for layer, tokens in itertools.product(layers, (1, 2, 7)):
        x = activations((tokens,), 32, torch.float32, random)
        assert torch.equal(compiled(x, layer), apply(x, layer))


@check
def compilers_know_the_shapes_of_the_compiled_operators() -> None:
    """Schemas as csrc/bindings.cpp defines them, under another name: the extension needs a GPU."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from vllm_volta import extension

    library = torch.library.Library("vllm_volta_shapes", "DEF")
    for schema in (
        "dequantize_nvfp4(Tensor packed, Tensor block_scale, Tensor global_scale, int n, int k) -> Tensor",
        "dequantize_fp8(Tensor weight, Tensor scale, int block_n, int block_k) -> Tensor",
        "nvfp4_panels(Tensor x, Tensor codes, Tensor scales, Tensor row_scale, Tensor? bias, Tensor arrivals, int n,"
        " int k, int fragments) -> Tensor",
        "fp8_panels(Tensor x, Tensor codes, Tensor? block_scale, Tensor row_scale, Tensor? bias, Tensor arrivals,"
        " int n, int k, int block_n, int block_k, int fragments) -> Tensor",
        "dequantize_nvfp4_panels(Tensor codes, Tensor scales, int first, int last, int k, int fragments) -> Tensor",
        "dequantize_fp8_panels(Tensor codes, Tensor? block_scale, Tensor row_scale, int first, int last, int k,"
        " int block_n, int block_k, int fragments) -> Tensor",
        "write_cache(Tensor key, Tensor value, Tensor(a!) cache, Tensor slots) -> ()",
        "paged_attention(Tensor query, Tensor cache, Tensor(a!) out, Tensor query_start, Tensor lengths, Tensor"
        " block_table, Tensor(b!) partial, Tensor(c!) arrivals, Tensor? sinks, Tensor? slopes, Tensor? ranges, int"
        " decodes, int decode_tokens, int most_decode_queries, int tokens, float scale, float soft_cap, int window,"
        " bool clamp_ranges, int fragments) -> ()",
    ):
        library.define(schema)
    extension.register_fakes(library)
    ops, half, byte = torch.ops.vllm_volta_shapes, torch.float16, torch.uint8
    with FakeTensorMode():
        x, rows = torch.empty(5, 96, dtype=half, device="cuda"), torch.empty(40, device="cuda")
        nvfp4 = [torch.empty(2, 2, size, dtype=byte, device="cuda") for size in (1024, 128)]
        fp8, arrivals = torch.empty(2, 2, 2048, dtype=byte, device="cuda"), torch.empty(1, dtype=torch.int32)
        for found, shape in (
            (ops.nvfp4_panels(x, *nvfp4, rows, None, arrivals, 40, 96, 0), (5, 40)),
            (ops.fp8_panels(x, fp8, None, rows, None, arrivals, 40, 96, 0, 0, 1), (5, 40)),
            (ops.dequantize_nvfp4_panels(*nvfp4, 32, 40, 96, 0), (8, 96)),
            (ops.dequantize_fp8_panels(fp8, None, rows, 0, 32, 96, 0, 0, 1), (32, 96)),
            (ops.dequantize_nvfp4(torch.empty(40, 48, dtype=byte), rows, rows, 40, 96), (40, 96)),
            (ops.dequantize_fp8(torch.empty(40, 96, dtype=byte), rows, 0, 0), (40, 96)),
        ):
            assert (found.shape, found.dtype) == (shape, half), (found.shape, found.dtype)
        cache, new, integers = torch.empty(9, 2, 16, 128, dtype=half), torch.empty(5, 2, 64, dtype=half), arrivals
        assert ops.write_cache(new, new, cache, torch.empty(5, dtype=torch.int64)) is None
        tensors = (new, cache, new, integers, integers, torch.empty(1, 9, dtype=torch.int32), rows, integers)
        assert ops.paged_attention(*tensors, None, None, None, 1, 5, 5, 5, 0.125, 0.0, 0, False, 0) is None


@check
def tiles_for_cublas_are_nearly_equal_and_fit_the_workspace() -> None:
    from vllm_volta import ops

    for n, k in ((1, 16), (4120, 5120), (28672, 8192), (8192, 28672), (17408, 5120), (5120, 17408), (152064, 5120)):
        tiles = list(ops.gemm_tiles(n, k))
        assert tiles[0][0] == 0 and tiles[-1][1] == n
        assert all(last == first for (_, last), (first, _) in itertools.pairwise(tiles))
        lengths = [last - first for first, last in tiles]
        assert all(first % ops.GEMM_ROWS == 0 for first, _ in tiles)
        assert max(lengths) * k * 2 <= 64 * 2**20
        assert max(lengths) - min(lengths) < ops.GEMM_ROWS * len(tiles), lengths
        assert len(tiles) == -(-n // (ops.WORKSPACE_ELEMENTS // k // ops.GEMM_ROWS * ops.GEMM_ROWS))


@check
def a_tile_is_multiplied_with_the_factor_of_each_matrix() -> None:
    """What cuBLAS is given, with PyTorch's own multiplication in its place: edges of matrices lie in any tile."""
    import torch
    from checks import activations, near, random_nvfp4
    from vllm_volta import dequantize, ops

    random, widths = generator(20), [130, 35, 300]
    factors = [163.84, 0.5, 9.25]
    packed, block_scale, _ = random_nvfp4(465, 64, random)
    x = activations((5,), 64, torch.float32, random)
    exact = dequantize.nvfp4(packed, block_scale, torch.tensor([2.0**-14]), torch.float32)
    assert torch.equal(exact.half().float(), exact), "float16 holds code * block scale * 2^-14 exactly"
    weight = exact * torch.tensor(factors).repeat_interleave(torch.tensor(widths)).reshape(-1, 1)
    with replaced(ops, "WORKSPACE_ELEMENTS", 128 * 64):
        tiles = list(ops.gemm_tiles(465, 64))
    assert len(tiles) == 4
    for bias in (None, torch.randn(465, generator=random)):
        out = torch.full((5, 465), torch.nan)
        for first, last in tiles:
            ops._multiply_tile(x, exact[first:last], first, bias, widths, factors, out)
        near(out, x, weight, bias)


@check
def cublas_adds_in_float32_and_its_settings_stay_as_they_were() -> None:
    import torch
    from vllm_volta import ops

    settings = torch.backends.cuda.matmul

    def current() -> tuple[bool, bool]:
        reduced = settings.allow_fp16_reduced_precision_reduction
        return reduced, settings.allow_fp16_reduced_precision_reduction_split_k

    kept = current()
    try:
        for before in ((True, True), (False, True), (False, False)):
            settings.allow_fp16_reduced_precision_reduction = before
            with ops._sums_in_float32():
                assert not current()[0]
            assert current() == before
    finally:
        settings.allow_fp16_reduced_precision_reduction = kept


@check
def activations_that_kernels_cannot_read_are_copied() -> None:
    import torch
    from vllm_volta import ops

    table = torch.arange(16 * 48.0).half().reshape(16, 48)
    for rows, is_copied in ((table, False), (table[:, 8:40], False), (table[:, 4:20], True), (table.t(), True)):
        found = ops._readable(rows)
        assert torch.equal(found, rows)
        assert (found.data_ptr() != rows.data_ptr()) == is_copied
        assert found.stride(1) == 1 and found.stride(0) % 8 == 0 and found.data_ptr() % 16 == 0


# ---------------------------------------------------------------- vLLM's methods with layers of panels


@check
def layers_of_compressed_tensors_become_panels() -> None:
    import functools

    import torch
    from checks import assert_layer

    for name in ("quad-pairs", "octets"):
        with environment(VLLM_VOLTA_PANELS="1", VLLM_VOLTA_FRAGMENTS=name):
            scheme, layer, parts = loaded_nvfp4([1e-4, 4e-4, 16e-4])
        assert_layer(parts, functools.partial(scheme.apply_weights, layer), reciprocal=True)
        held = {name: (tuple(p.shape), p.dtype) for name, p in layer.named_parameters()}
        assert held == {
            "weight": ((3, 1, 1024), torch.uint8),
            "weight_scale": ((3, 1, 128), torch.uint8),
            "weight_row_scale": ((96,), torch.float32),
        }
        assert dict(layer.named_buffers())["volta_arrivals"].tolist() == [0, 0, 0]
        assert "volta_arrivals" not in layer.state_dict()
        assert (layer.volta_widths, len(layer.volta_factors)) == ([48, 32, 16], 3)


@check
def layers_of_fp8_become_panels_where_their_scales_let_them() -> None:
    import torch
    from checks import activations, fp8_method, half_precision, near

    random, x = generator(21), activations((3,), 128, torch.float16, generator(22))
    weight = fp8_codes(128, 128, random)
    for block, is_panels in (([128, 128], True), ([32, 64], True), ([16, 64], False), (None, True)):
        settings = {"activation_scheme": "dynamic"} | ({"weight_block_size": block} if block else {})
        with environment(VLLM_VOLTA_PANELS="1"):
            method, layer = fp8_method(settings, [128] if block == [128, 128] else [64, 32, 32])
            scale_of = layer.weight_scale_inv if block else layer.weight_scale
            with torch.no_grad():
                layer.weight.copy_(weight)
                scale_of.copy_(torch.rand(scale_of.shape, generator=random) * 0.01)
            scale = scale_of.data.clone()
            with half_precision():  # as vLLM does it: what names no type is float16
                method.process_weights_after_loading(layer)
        if is_panels:  # kernels read these as float32
            assert {layer.weight_row_scale.dtype, scale_of.dtype} == {torch.float32}
        if block:
            rows = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
        else:
            rows = scale.repeat_interleave(torch.tensor([64, 32, 32])).reshape(-1, 1)
        near(method.apply(layer, x), x, (weight.float() * rows).half(), None)
        assert (layer.volta_fragments is not None) == is_panels == (layer.weight.dtype == torch.uint8), block


@check
def fp8_of_any_width_has_a_way() -> None:
    """Panels need a multiple of 16 columns."""
    import torch
    from checks import activations, near, parameter
    from vllm.model_executor.kernels.linear import FP8ScaledMMLinearLayerConfig
    from vllm.model_executor.layers.quantization.utils import quant_utils as keys
    from vllm_volta.fp8 import VoltaFp8LinearKernel

    half, random = torch.float16, generator(23)
    config = FP8ScaledMMLinearLayerConfig(
        weight_quant_key=keys.kFp8StaticChannelSym,
        activation_quant_key=keys.kFp8DynamicTokenSym,
        weight_shape=(40, 24),
        input_dtype=half,
        out_dtype=half,
    )
    kernel = VoltaFp8LinearKernel(config, ["weight", "weight_scale", "input_scale", "input_scale_ub"])
    for columns, is_panels in ((24, False), (48, True)):
        layer, weight = torch.nn.Module(), fp8_codes(40, columns, random)
        layer.logical_widths, layer.weight = [40], parameter(weight.t())
        layer.weight_scale = parameter(torch.rand(40, 1, generator=random) * 0.01)
        expected = (weight.float() * layer.weight_scale).half()
        with environment(VLLM_VOLTA_PANELS="1"):
            kernel.process_weights_after_loading(layer)
        assert (layer.volta_fragments is not None) == is_panels
        x = activations((3,), columns, half, random)
        near(kernel.apply_weights(layer, x), x, expected, None)


@check
def what_is_damaged_is_refused_with_the_name_of_the_layer() -> None:
    import torch
    from checks import fp8_method, refused

    with environment(VLLM_VOLTA_PANELS="1"):
        method, layer = fp8_method({"activation_scheme": "dynamic", "weight_block_size": [128, 128]}, [128])
        layer.prefix = "model.layers.3.mlp.down_proj"
        with torch.no_grad():
            layer.weight_scale_inv.fill_(1.0)
            layer.weight.copy_(torch.full((128, 128), torch.nan))
        told = "FP8 weight of model.layers.3.mlp.down_proj: some values are not numbers; the checkpoint is damaged"
        refused(lambda: method.process_weights_after_loading(layer), told)
        refused(lambda: loaded_nvfp4([1e-4, 4e-4, 2.0**120]), "not finite")


@check
def vllm_gets_the_floating_point_weight_of_a_layer_of_panels() -> None:
    """As latent attention (MLA) does when it has loaded kv_b_proj: it multiplies with an identity matrix."""
    import torch
    from checks import fp8_method, same_bits
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsLinearMethod,
    )
    from vllm.model_executor.layers.quantization.utils.quant_utils import get_and_maybe_dequant_weights

    with environment(VLLM_VOLTA_PANELS="1"):
        scheme, layer, parts = loaded_nvfp4([2**-14, 2**-12, 2**-10])
        layer.scheme, layer.input_size_per_partition = scheme, 64
        layer.quant_method = CompressedTensorsLinearMethod(None)
        same_bits(get_and_maybe_dequant_weights(layer, torch.float16) + 0.0, dequantised(parts) + 0.0)

        settings = {"activation_scheme": "dynamic", "weight_block_size": [128, 128]}
        layer.quant_method, layer = fp8_method(settings, [128])
        weight = fp8_codes(128, 128, generator(24))
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.weight_scale_inv.fill_(0.0123)
        layer.quant_method = fp8_method(settings, [128])[0]
        layer.quant_method.process_weights_after_loading(layer)
        layer.input_size_per_partition = 128
        expected = (weight.float() * torch.tensor(0.0123)).half()
        same_bits(get_and_maybe_dequant_weights(layer, torch.float16) + 0.0, expected + 0.0)


@check
def new_weights_go_where_those_before_them_lie() -> None:
    """vLLM's own reloading, as after sleep mode 2 or between steps of training: CUDA graphs keep their addresses."""
    from checks import assert_layer, refused
    from vllm.model_executor.model_loader import reload

    factors = [1e-4, 4e-4, 16e-4]
    with environment(VLLM_VOLTA_PANELS="1"):
        method, layer = reloadable(factors)
        places = {name: tensor.data_ptr() for name, tensor in layer.state_dict().items()}
        places["volta_arrivals"] = layer.volta_arrivals.data_ptr()
        parts = load_again(reload, layer, factors, seed=31)
        assert {name: getattr(layer, name).data_ptr() for name in places} == places
        assert_layer(parts, lambda x, bias: method.apply(layer, x, bias), reciprocal=True)
        told = "the new global scales differ from those that were loaded before"
        refused(lambda: load_again(reload, layer, [1e-4, 4e-4, 8e-4], seed=32), told)

        method, layer = reloadable(factors)
        with eager():
            parts = load_again(reload, layer, [1e-4, 4e-4, 8e-4], seed=33)
        assert_layer(parts, lambda x, bias: method.apply(layer, x, bias), reciprocal=True)


@check
def new_fp8_weights_go_where_those_before_them_lie() -> None:
    import torch
    from checks import activations, half_precision, near
    from vllm.model_executor.layers.quantization.fp8 import Fp8Config, Fp8LinearMethod
    from vllm.model_executor.model_loader import reload
    from vllm.model_executor.model_loader.weight_utils import default_weight_loader

    for block in ([128, 128], None):
        settings = {"activation_scheme": "dynamic"} | ({"weight_block_size": block} if block else {})
        with half_precision(), environment(VLLM_VOLTA_PANELS="1"):
            method = Fp8LinearMethod(Fp8Config.from_config({"quant_method": "fp8", **settings}))
            layer = torch.nn.Module()
            method.create_weights(layer, 128, [256], 128, 256, torch.float16, weight_loader=default_weight_loader)
            layer.quant_method = method
            reload.record_metadata_for_reloading(layer)
            name = "weight_scale_inv" if block else "weight_scale"
            with torch.no_grad():
                layer.weight.copy_(fp8_codes(256, 128, generator(34)))
                getattr(layer, name).fill_(0.5)
            method.process_weights_after_loading(layer)
            places = {each: tensor.data_ptr() for each, tensor in layer.state_dict().items()}
            assert places.keys() == {"weight", name, "weight_row_scale"}
            weight, scale = fp8_codes(256, 128, generator(35)), torch.tensor([0.25, 0.75][: 2 if block else 1])
            reload.initialize_layerwise_reload(layer)
            layer.weight.weight_loader(layer.weight, weight)
            getattr(layer, name).weight_loader(getattr(layer, name), scale.reshape(-1, 1) if block else scale)
            reload.finalize_layerwise_reload(layer, None)
        assert {each: getattr(layer, each).data_ptr() for each in places} == places
        x = activations((3,), 128, torch.float16, generator(36))
        rows = scale.repeat_interleave(256 // len(scale)).reshape(-1, 1)
        near(method.apply(layer, x), x, (weight.float() * rows).half(), None)


@check
def variables_say_whether_there_are_panels_and_those_that_mean_nothing_are_refused() -> None:
    import torch
    from checks import refused
    from vllm.config import LoadConfig, VllmConfig, set_current_vllm_config
    from vllm_volta.layout import Layout, layout_for

    weight = torch.zeros(1)

    def chosen(**variables: str) -> Layout:
        with environment(**variables):
            return layout_for(weight, torch.float16, "nvfp4_panels")

    assert chosen() == Layout(None, "there are no compiled kernels for cpu")
    assert chosen(VLLM_VOLTA_PANELS="0") == Layout(None, "VLLM_VOLTA_PANELS=0")
    assert chosen(VLLM_VOLTA_PANELS="1").fragments == QUAD_PAIRS
    octets = chosen(VLLM_VOLTA_PANELS="1", VLLM_VOLTA_FRAGMENTS="octets")
    assert octets.fragments == OCTETS
    assert octets.reason == (
        "panels of octets, which PyTorch undoes: VLLM_VOLTA_PANELS=1, but there are no compiled kernels for cpu"
    )
    assert "number of tokens" in chosen(VLLM_VOLTA_PANELS="1", VLLM_BATCH_INVARIANT="1").reason
    config = VllmConfig(load_config=LoadConfig(load_format="sharded_state"))
    with set_current_vllm_config(config):
        found = chosen(VLLM_VOLTA_PANELS="1")
    assert found == Layout(None, "--load-format sharded_state has no room for panels")
    refused(lambda: chosen(VLLM_VOLTA_PANELS="yes"), "VLLM_VOLTA_PANELS=yes: it may be 0, 1 or unset")
    refused(lambda: chosen(VLLM_VOLTA_PANELS="1", VLLM_VOLTA_FRAGMENTS="wmma"), "it may be quad-pairs, octets or unset")


@check
def compiled_code_with_other_constants_is_not_taken_from_the_cache() -> None:
    """vLLM's key for it, which a later engine with another checkpoint in the same folder makes too."""
    import gc

    from vllm import envs
    from vllm.config.utils import hash_factors
    from vllm_volta import plugin

    def key(factors: list[float], panels: str) -> str:
        with environment(VLLM_VOLTA_PANELS=panels):
            held = loaded_nvfp4(factors)
            gc.collect()  # layers of checks before this one
            found = hash_factors(envs.compile_factors())
        del held
        return found

    plugin.register()
    # In panels code holds the scales; in rows how many of them are different.
    scales = [1e-4, 4e-4, 16e-4], [1e-4, 4e-4, 8e-4], [1e-4, 1e-4, 1e-4]
    panels, rows = ([key(factors, layout) for factors in scales] for layout in ("1", "0"))
    assert len({*panels, *rows}) == 5 and rows[0] == rows[1]
    assert [key(factors, "1") for factors in scales] == panels, "and the same code is found again"
    for name in ("VLLM_VOLTA_DISABLE", "VLLM_VOLTA_FORCE", "VLLM_VOLTA_PANELS", "VLLM_VOLTA_FRAGMENTS"):
        with environment(**{name: "0"}):
            assert envs.compile_factors()[name] == "0"


# ---------------------------------------------------------------- what the checks share


def generator(seed: int) -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(seed)


def fp8_codes(rows: int, columns: int, random: torch.Generator) -> torch.Tensor:
    """All codes that are numbers, among them both zeros and the subnormal ones."""
    import torch

    codes = torch.randint(0, 254, (rows, columns), dtype=torch.uint8, generator=random)
    return (codes + (codes >= 0x7F)).view(torch.float8_e4m3fn)


def signed(block_scale: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """The same scales, half of them negative."""
    import torch

    signs = torch.randint(0, 2, block_scale.shape, dtype=torch.uint8, generator=random) << 7
    return (block_scale.view(torch.uint8) ^ signs).view(torch.float8_e4m3fn)


def same_bytes(found: torch.Tensor, expected: torch.Tensor) -> None:
    import torch

    assert found.dtype == expected.dtype and found.is_contiguous()
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


def nvfp4_arguments(
    packed: torch.Tensor, block_scale: torch.Tensor, widths: list[int], factors: torch.Tensor, fragments: int
) -> Callable[[torch.Tensor | None], tuple[Any, ...]]:
    """What nvfp4_panel_linear takes after x, given a bias."""
    import torch
    from vllm_volta import layout, panels

    (rows, half), scaled = packed.shape, factors * 2.0**14
    codes, scales = panels.nvfp4_panels(packed, block_scale, fragments)
    row_scale, arrivals = scaled.repeat_interleave(torch.tensor(widths)), layout.new_arrivals(codes)
    after = (arrivals, rows, 2 * half, widths, scaled.tolist(), fragments)
    return lambda bias: (codes, scales, row_scale, bias, *after)


def fp8_arguments(
    weight: torch.Tensor, scale: torch.Tensor, block_n: int, block_k: int, fragments: int
) -> Callable[[torch.Tensor | None], tuple[Any, ...]]:
    """What fp8_panel_linear takes after x, given a bias."""
    import torch
    from vllm_volta import layout, panels

    codes = panels.fp8_panels(weight, fragments)
    row_scale = (torch.ones(weight.shape[0]) if block_n else scale.reshape(-1)) * 2.0**8
    after = (layout.new_arrivals(codes), *weight.shape, block_n, block_k, fragments)
    return lambda bias: (codes, scale if block_n else None, row_scale, bias, *after)


@contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    kept = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@contextmanager
def eager() -> Iterator[None]:
    """vLLM's configuration as with --enforce-eager."""
    from vllm.config import VllmConfig, set_current_vllm_config

    config = VllmConfig()
    object.__setattr__(config, "model_config", types.SimpleNamespace(enforce_eager=True))
    with set_current_vllm_config(config):
        yield


def loaded_nvfp4(factors: list[float]) -> tuple[Any, Any, list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]]:
    """A scheme of compressed-tensors, a layer of 48 + 32 + 16 rows that it has prepared, and what was loaded."""
    import torch
    from checks import fused_nvfp4
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import CompressedTensorsW4A4Fp4

    scheme = CompressedTensorsW4A4Fp4(use_a16=True)
    layer, parts = fused_nvfp4(scheme.create_weights, "weight_packed")
    parts = [(*part[:2], torch.tensor(factor)) for part, factor in zip(parts, factors, strict=True)]
    with torch.no_grad():
        layer.weight_global_scale.copy_(torch.stack([1 / factor for *_, factor in parts]))
    scheme.process_weights_after_loading(layer)
    return scheme, layer, parts


def dequantised(parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    import torch
    from vllm_volta import dequantize

    return torch.cat([dequantize.nvfp4(*part, torch.float16) for part in parts])


def reloadable(factors: list[float]) -> tuple[Any, Any]:
    """A linear method and a layer whose metadata vLLM has recorded before it was prepared."""
    import torch
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
        CompressedTensorsLinearMethod,
    )
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import CompressedTensorsW4A4Fp4
    from vllm.model_executor.model_loader import reload
    from vllm.model_executor.model_loader.weight_utils import default_weight_loader

    scheme, method, layer = CompressedTensorsW4A4Fp4(True), CompressedTensorsLinearMethod(None), torch.nn.Module()
    scheme.create_weights(layer, [48, 32, 16], 64, torch.float16, weight_loader=default_weight_loader)
    layer.scheme, layer.quant_method = scheme, method
    reload.record_metadata_for_reloading(layer)
    with torch.no_grad():
        layer.weight_packed.zero_()
        layer.weight_scale.copy_(torch.ones(96, 4))
        layer.weight_global_scale.copy_(torch.tensor([1 / factor for factor in factors]))
    method.process_weights_after_loading(layer)
    return method, layer


def load_again(
    reload: Any, layer: Any, factors: list[float], seed: int
) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    import torch
    from checks import random_nvfp4

    parts = [
        (*random_nvfp4(rows, 64, generator(seed))[:2], torch.tensor(factor))
        for rows, factor in zip((48, 32, 16), factors, strict=True)
    ]
    reload.initialize_layerwise_reload(layer)
    for name, data in (
        ("weight_packed", torch.cat([packed for packed, *_ in parts])),
        ("weight_scale", torch.cat([scale for _, scale, _ in parts])),
        ("weight_global_scale", torch.tensor([1 / factor for factor in factors])),
    ):
        parameter = getattr(layer, name)
        parameter.weight_loader(parameter, data)
    reload.finalize_layerwise_reload(layer, None)
    return parts
