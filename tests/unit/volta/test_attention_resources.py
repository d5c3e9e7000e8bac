"""What the kernels for attention need of a multiprocessor of 7.0, and which instructions they are made of.

As in test_panel_resources.py: kernels with the fragments `octets` serve 8.0 and later only, and need but assemble.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.volta.device_compiler import DeviceCode, blocks_at_once, bounds_of
from tests.unit.volta.host_attention import SPLIT_KERNELS, TILED_KERNELS, HostAttention

FRAGMENTS = ("quad_pairs", "octets")
SPLIT = {f"attention_split_quad_pairs_{size}_{rows}": (size, rows) for size, rows in SPLIT_KERNELS}
TILED = {f"attention_tiled_quad_pairs_{size}": size for size in TILED_KERNELS}
SERVE_7_0 = [*SPLIT, *TILED, "write_cache"]

STREAMED_16_BYTES = "ld.global.nc.L1::no_allocate.v4.u32"
KEYS = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
VALUES = "mma.sync.aligned.m8n8k4.col.col.f32.f16.f16.f32"
OCTETS = "wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32"


def test_there_is_a_kernel_for_all_head_sizes_and_fragments(device_code: DeviceCode) -> None:
    head_sizes = (64, 80, 96, 128, 256, 512)
    assert head_sizes == TILED_KERNELS
    assert tuple((size, rows) for size in head_sizes for rows in (8, 16) if (size, rows) != (512, 16)) == SPLIT_KERNELS
    expected = {name.replace("quad_pairs", each) for name in SERVE_7_0 for each in FRAGMENTS}
    assert expected == {name for name in device_code.kernels if "attention" in name or name == "write_cache"}


@pytest.mark.parametrize("name", SERVE_7_0)
def test_nothing_is_spilled_to_memory(device_code: DeviceCode, name: str) -> None:
    kernel = device_code.kernels[name]
    assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (0, 0, 0), kernel
    assert ".local" not in device_code.bodies[name]


@pytest.mark.parametrize(("name", "head_size"), TILED.items())
def test_shared_memory_of_tiled_attention_is_there(
    device_code: DeviceCode, attention: HostAttention, name: str, head_size: int
) -> None:
    """7.0 lends a thread block 96 KB, more than 48 KB when asked to (CUDA C++ programming guide)."""
    kernel = device_code.kernels[name]
    assert kernel.shared + attention.library.tiled_shared_bytes(head_size) <= 96 * 1024


@pytest.mark.parametrize("name", SPLIT)
def test_as_many_blocks_of_split_attention_fit_as_are_declared(device_code: DeviceCode, name: str) -> None:
    kernel, bounds = device_code.kernels[name], bounds_of(device_code.bodies[name])
    assert kernel.shared <= 48 * 1024
    assert blocks_at_once(kernel, bounds.threads) >= bounds.blocks > 0, kernel


def test_occupancy_is_what_it_was(device_code: DeviceCode, attention: HostAttention) -> None:
    """Fewer blocks would mean that fewer threads wait for memory at a time; more, that this test has to learn it."""
    split = {
        shape: blocks_at_once(device_code.kernels[name], attention.library.split_threads())
        for name, shape in SPLIT.items()
    }
    assert split == {shape: 3 if shape == (64, 8) else 2 for shape in SPLIT_KERNELS}
    for name, head_size in TILED.items():
        kernel = device_code.kernels[name]
        all_shared = kernel.shared + attention.library.tiled_shared_bytes(head_size)
        assert blocks_at_once(replace(kernel, shared=all_shared), attention.library.tiled_threads()) == 1


@pytest.mark.parametrize("name", [*SPLIT, *TILED])
def test_products_are_made_by_the_tensor_cores_of_7_0(
    device_code: DeviceCode, attention: HostAttention, name: str
) -> None:
    """For 32 keys and 8 rows: four columns at a time of products with keys, four keys of products with values."""
    if name in SPLIT:
        head_size, rows = SPLIT[name]
    else:
        head_size = TILED[name]
        rows = attention.library.tiled_rows(head_size) * 32 // attention.library.tiled_threads()
    tiles = rows // 8
    instructions = attention.library.padded_head_size(head_size) // 4 * tiles
    body = device_code.bodies[name]
    assert (body.count(KEYS), body.count(VALUES), body.count(OCTETS)) == (instructions, instructions, 0)
    octets = device_code.bodies[name.replace("quad_pairs", "octets")]
    assert octets.count(OCTETS) == instructions // 2
    assert KEYS not in octets and VALUES not in octets


@pytest.mark.parametrize("name", [*SPLIT, *TILED])
def test_keys_and_values_are_read_16_bytes_at_a_time(device_code: DeviceCode, name: str) -> None:
    body = device_code.bodies[name]
    assert STREAMED_16_BYTES in body
    assert "ld.global.nc.L1::no_allocate.u32" not in body
    assert "ld.global.u16" not in body and "st.global.u16" not in body


def test_the_cache_is_written_16_bytes_at_a_time(device_code: DeviceCode) -> None:
    body = device_code.bodies["write_cache"]
    assert "st.global.v4.u32" in body
    assert "st.global.u" not in body
