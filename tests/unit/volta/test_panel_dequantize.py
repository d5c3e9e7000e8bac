"""Weights in panels as rows of fp16: the kernels dequantize_*_panels_*, on the host, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.volta.host_kernels import ORDERS, HostKernels, Weight
from tests.unit.volta.narrow_formats import e2m1, e4m3, same_bits

every_fragments = pytest.mark.parametrize("fragments", ["quad_pairs", "octets"])
SHAPES = [(1, 16), (31, 48), (33, 64), (130, 80), (300, 272)]


def parts_of(rows: int) -> list[tuple[int, int]]:
    """All rows, the first ones, the last ones, and some in between."""
    parts = {(0, rows), (0, min(rows, 20)), ((rows - 1) // 32 * 32, rows)}
    return sorted(parts | ({(32, 97)} if rows > 97 else set()))


@every_fragments
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_nvfp4_weights_are_exact(host_kernels: HostKernels, fragments: str, rows: int, columns: int) -> None:
    random = np.random.default_rng(rows)
    codes = random.integers(0, 16, (rows, columns))
    scales = random.integers(0, 0x7F, (rows, columns // 16)).astype(np.uint8)
    expected = e2m1(codes) * np.repeat(e4m3(scales), 16, axis=1) * np.float32(2.0**-14)
    assert np.array_equal(expected, expected.astype(np.float16))
    for number, (first, last) in enumerate(parts_of(rows)):
        for blocks in (1, 3):
            order = ORDERS[(number + blocks) % 4]
            found = host_kernels.dequantize(
                Weight("nvfp4", codes, scales), fragments, None, (first, last), blocks, order
            )
            same_bits(found, expected[first:last].astype(np.float16))


@every_fragments
def test_every_nvfp4_code_with_every_scale_is_exact(host_kernels: HostKernels, fragments: str) -> None:
    codes = np.tile(np.arange(16), (32, 4))
    scales = np.minimum(np.arange(128), 126).reshape(32, 4).astype(np.uint8)
    found = host_kernels.dequantize(Weight("nvfp4", codes, scales), fragments, None, (0, 32), 1)
    same_bits(found, (e2m1(codes) * np.repeat(e4m3(scales), 16, axis=1) * np.float32(2.0**-14)).astype(np.float16))


@every_fragments
@pytest.mark.parametrize("blocks", [None, (32, 64), (64, 128), (128, 128)])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_fp8_weights_are_rounded_once(
    host_kernels: HostKernels, fragments: str, rows: int, columns: int, blocks: tuple[int, int] | None
) -> None:
    """With the product of the scales of row and block, in fp32; scales so small and so large that fp16 overflows."""
    random = np.random.default_rng(rows)
    codes = np.resize(random.permutation(np.delete(np.arange(256), [0x7F, 0xFF])), (rows, columns)).astype(np.uint8)
    row_scale = (2.0 ** random.uniform(-14, 18, rows)).astype(np.float32)
    scale = row_scale[:, None]
    weight = Weight("fp8", codes, None)
    if blocks is not None:
        shape = (-(-rows // blocks[0]), -(-columns // blocks[1]))
        weight = Weight("fp8", codes, random.uniform(0.3, 3, shape).astype(np.float32), *blocks)
        assert weight.scales is not None
        spread = np.repeat(np.repeat(weight.scales, blocks[0], axis=0), blocks[1], axis=1)[:rows, :columns]
        scale = scale * spread
    with np.errstate(over="ignore"):
        expected = (e4m3(codes) * np.float32(2.0**-8) * scale).astype(np.float16)
    for number, (first, last) in enumerate(parts_of(rows)):
        found = host_kernels.dequantize(weight, fragments, row_scale, (first, last), 1 + number, ORDERS[number % 4])
        same_bits(found, expected[first:last])
