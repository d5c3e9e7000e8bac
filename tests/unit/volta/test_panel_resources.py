"""What the kernels for weights in panels need of a multiprocessor of 7.0, and which instructions they are made of.

Machine code of 7.0 comes from ptxas 12.6, as in the image. Kernels with the fragments `octets` serve 8.0 and later
only: of them all that is asked here is that they assemble.
"""

from __future__ import annotations

import pytest

from tests.unit.volta.device_compiler import DeviceCode, Kernel, blocks_at_once, bounds_of
from tests.unit.volta.host_kernels import KERNEL_TOKENS

FORMS = ("nvfp4", "fp8")
FRAGMENTS = ("quad_pairs", "octets")
MATMULS = {f"{form}_panels_quad_pairs_{tokens}": tokens for form in FORMS for tokens in KERNEL_TOKENS}
DEQUANTIZERS = [f"dequantize_{form}_panels_quad_pairs" for form in FORMS]
SERVE_7_0 = [*MATMULS, *DEQUANTIZERS]

STREAMED_16_BYTES = "ld.global.nc.L1::no_allocate.v4.u32"
QUAD_PAIRS = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
OCTETS = "wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32"


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "blocks"),
    [(32, 0, 256, 8), (33, 0, 256, 6), (128, 0, 256, 2), (129, 0, 256, 1), (16, 0, 32, 32), (32, 16385, 128, 5)],
)
def test_blocks_that_fit_are_counted_as_nvidias_calculator_does(
    registers: int, shared: int, threads: int, blocks: int
) -> None:
    assert blocks_at_once(Kernel("kernel", registers, 0, 0, 0, shared), threads) == blocks


def test_there_is_a_kernel_for_all_formats_fragments_and_numbers_of_tokens(device_code: DeviceCode) -> None:
    expected = {
        *(f"{form}_panels_{each}_{tokens}" for form in FORMS for each in FRAGMENTS for tokens in KERNEL_TOKENS),
        *(f"dequantize_{form}_panels_{each}" for form in FORMS for each in FRAGMENTS),
    }
    assert expected == {name for name in device_code.kernels if "panels" in name}


@pytest.mark.parametrize("name", SERVE_7_0)
def test_nothing_is_spilled_to_memory(device_code: DeviceCode, name: str) -> None:
    kernel = device_code.kernels[name]
    assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (0, 0, 0), kernel
    assert ".local" not in device_code.bodies[name]


@pytest.mark.parametrize("name", SERVE_7_0)
def test_as_many_blocks_fit_as_are_declared(device_code: DeviceCode, name: str) -> None:
    kernel, bounds = device_code.kernels[name], bounds_of(device_code.bodies[name])
    # More shared memory than that has to be asked for.
    assert kernel.shared <= 48 * 1024
    assert blocks_at_once(kernel, bounds.threads) >= max(bounds.blocks, 1), kernel


@pytest.mark.parametrize(
    ("form", "by_tokens"),
    [("nvfp4", {1: 4, 8: 4, 16: 4, 32: 3, 64: 2}), ("fp8", {1: 4, 8: 4, 16: 3, 32: 2, 64: 2})],
)
def test_occupancy_is_what_it_was(device_code: DeviceCode, form: str, by_tokens: dict[int, int]) -> None:
    """Fewer blocks would mean that fewer threads wait for memory at a time; more, that this test has to learn it."""

    def blocks(name: str) -> int:
        return blocks_at_once(device_code.kernels[name], bounds_of(device_code.bodies[name]).threads)

    assert {tokens: blocks(f"{form}_panels_quad_pairs_{tokens}") for tokens in KERNEL_TOKENS} == by_tokens
    assert blocks(f"dequantize_{form}_panels_quad_pairs") == 5


@pytest.mark.parametrize(("name", "tokens"), MATMULS.items())
def test_products_are_made_by_the_tensor_cores_of_7_0(device_code: DeviceCode, name: str, tokens: int) -> None:
    tiles = -(-tokens // 8)
    body = device_code.bodies[name]
    # 4 steps of 16 columns, 4 columns each.
    assert body.count(QUAD_PAIRS) % (16 * tiles) == 0 and QUAD_PAIRS in body
    assert OCTETS not in body
    octets = device_code.bodies[name.replace("quad_pairs", "octets")]
    assert octets.count(OCTETS) % (4 * tiles) == 0 and OCTETS in octets
    assert QUAD_PAIRS not in octets


@pytest.mark.parametrize("name", SERVE_7_0)
def test_weights_are_read_16_bytes_at_a_time(device_code: DeviceCode, name: str) -> None:
    body = device_code.bodies[name]
    assert STREAMED_16_BYTES in body
    # Otherwise only NVFP4's scales are streamed: 4 bytes for 32 of codes.
    words = body.count("ld.global.nc.L1::no_allocate.u32")
    assert words * 2 == (body.count(STREAMED_16_BYTES) if "nvfp4" in name else 0)
