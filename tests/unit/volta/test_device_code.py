"""The kernels of vllm_volta: NVIDIA's compilers take them for compute capability 7.0, and what they compute is right.

No GPU is needed: NVRTC and ptxas come from the development environment, and the same source runs on the host as C++.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.unit.volta.device_compiler import (
    CompilationError,
    DeviceCode,
    Kernel,
    LaunchBounds,
    assemble,
    bodies_of,
    bounds_of,
    ptx_of,
)
from tests.unit.volta.host_kernels import CSRC, Array, HostKernels
from tests.unit.volta.narrow_formats import e2m1, e4m3, same_bits


def test_all_kernels_stand_in_headers_that_the_device_code_includes(device_code: DeviceCode) -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in CSRC.iterdir() if path.is_file()}
    with_kernels = {name for name, text in texts.items() if "__global__" in text}
    assert with_kernels and with_kernels == set(re.findall(r'#include "(\S+)"', texts["device_code.cu"]))
    assert device_code.bodies.keys() == device_code.kernels.keys()


def test_kernels_for_rows_leave_the_registers_of_a_full_multiprocessor(device_code: DeviceCode) -> None:
    kernels = [kernel for name, kernel in device_code.kernels.items() if name.endswith("_kernel")]
    assert len(kernels) == (CSRC / "dequantize.cuh").read_text(encoding="utf-8").count("__global__")
    for kernel in kernels:
        # 65536 registers for 2048 threads (CUDA C programming guide, compute capability 7.0).
        assert kernel.registers <= 32, kernel
        assert (kernel.spill_stores, kernel.spill_loads) == (0, 0), kernel
    assert ".target sm_70" in device_code.ptx
    assert ".f64" not in device_code.ptx


def test_kernels_read_weights_in_words_of_8_and_16_bytes(device_code: DeviceCode) -> None:
    assert "ld.global.nc.v2.u32" in device_code.bodies["dequantize_nvfp4_kernel"]
    assert "ld.global.nc.v4.u32" in device_code.bodies["dequantize_fp8_kernel"]
    for name in ("dequantize_nvfp4_kernel", "dequantize_fp8_kernel"):
        assert device_code.bodies[name].count("st.global.v4.u32") == 2


@pytest.mark.parametrize(
    ("instruction", "since"),
    [
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%0];", 75),
        ("cp.async.wait_all;", 80),
        ("fma.rn.bf16x2 %0, %0, %0, %0;", 80),
        ("{.reg .b16 pair; mov.b16 pair, 0; cvt.rn.f16x2.e4m3x2 %0, pair;}", 89),
    ],
)
def test_an_instruction_that_volta_lacks_is_refused(instruction: str, since: int, tmp_path: Path) -> None:
    source = f'''extern "C" __global__ void later(unsigned int* out) {{
        unsigned int value = *out;
        asm volatile("{instruction}" : "+r"(value));
        *out = value;
    }}'''
    assert assemble(ptx_of(source, "later.cu", CSRC, f"compute_{since}"), tmp_path, f"sm_{since}")
    with pytest.raises(CompilationError, match=f"sm_{since}|not supported"):
        assemble(ptx_of(source, "later.cu", CSRC), tmp_path)


def test_what_the_compilers_say_is_read(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void add(float* out) { out[threadIdx.x] += 1; }'
    (kernel,) = assemble(ptx_of(source, "add.cu", CSRC), tmp_path)
    assert kernel == Kernel("add", kernel.registers, 0, 0, 0, 0) and 0 < kernel.registers <= 16
    source = """extern "C" __global__ void __launch_bounds__(64, 3) turn(float* out) {
        __shared__ float all[64];
        float mine[100];
        for (int i = 0; i < 100; ++i) mine[i] = out[i + threadIdx.x];
        all[threadIdx.x] = mine[int(out[0])];
        __syncthreads();
        out[threadIdx.x] = all[63 - threadIdx.x];
    }"""
    ptx = ptx_of(source, "turn.cu", CSRC)
    (kernel,) = assemble(ptx, tmp_path)
    assert (kernel.name, kernel.stack, kernel.shared) == ("turn", 400, 256)
    assert bounds_of(bodies_of(ptx)["turn"]) == LaunchBounds(64, 3)
    with pytest.raises(CompilationError, match="undefined_name"):
        ptx_of('extern "C" __global__ void broken() { undefined_name(); }', "broken.cu", CSRC)


@pytest.fixture
def kernels(host_kernels: HostKernels) -> ctypes.CDLL:
    """The kernels as host code."""
    return host_kernels.library


def pointer(array: Array) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def test_every_e4m3_code_decodes_exactly(kernels: ctypes.CDLL) -> None:
    found = np.array([kernels.one_e4m3(code) for code in range(256)], np.float32)
    same_bits(found, e4m3(np.arange(256)))
    assert (found[0x01], found[0x7E], found[0xFE]) == (2.0**-9, 448, -448)


def test_every_e2m1_code_decodes_exactly(kernels: ctypes.CDLL) -> None:
    found = np.array([kernels.one_e2m1(code) for code in range(16)], np.float32)
    same_bits(found, e2m1(np.arange(16)))


def test_higher_bits_of_a_word_do_not_matter_to_one_code(kernels: ctypes.CDLL) -> None:
    assert kernels.one_e4m3(0xFFFFFF38) == 1.0
    assert kernels.one_e2m1(0xFFFFFFF2) == 1.0


def test_nvfp4_weights_become_the_fp16_values_that_vllm_reckons(kernels: ctypes.CDLL) -> None:
    """Every pair of a value and a scale: value x (scale x global scale) in float32, then rounded to fp16."""
    random = np.random.default_rng(7)
    rows, columns = 256, 16 * 32
    codes = random.integers(0, 16, (rows, columns))
    codes[:, :16] = np.arange(16)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    scales = random.integers(0, 256, (rows, columns // 16)).astype(np.uint8)
    scales[:, 0] = np.arange(256)
    factor = np.array([0.0123], np.float32)
    out = np.empty((rows, columns), np.float16)
    blocks = ctypes.c_longlong(rows * columns // 16)
    assert kernels.nvfp4(pointer(packed), pointer(scales), pointer(factor), pointer(out), blocks) is None
    expected = e2m1(codes) * np.repeat(e4m3(scales) * factor, 16, axis=1)
    same_bits(out, expected.astype(np.float16))


@pytest.mark.parametrize(
    ("name", "rows", "columns", "block_rows", "block_columns"),
    [
        pytest.param("fp8", 300, 400, 128, 128, id="blocks of 128, the last ones cut"),
        pytest.param("fp8", 33, 64, 1, 64, id="one scale per row"),
        pytest.param("fp8", 33, 64, 33, 64, id="one scale"),
        pytest.param("fp8_unaligned", 130, 131, 128, 128, id="rows of any length, blocks"),
        pytest.param("fp8_unaligned", 5, 7, 1, 16, id="rows of any length, one scale per row"),
    ],
)
def test_fp8_weights_become_fp16_with_the_scale_of_their_tile(
    kernels: ctypes.CDLL, name: str, rows: int, columns: int, block_rows: int, block_columns: int
) -> None:
    random = np.random.default_rng(11)
    weight = random.integers(0, 256, (rows, columns)).astype(np.uint8)
    tiles = (-(-rows // block_rows), -(-columns // block_columns))
    scale = random.uniform(1e-4, 3, tiles).astype(np.float32)
    out = np.empty((rows, columns), np.float16)
    kernel: Callable[..., bytes | None] = getattr(kernels, name)
    assert kernel(pointer(weight), pointer(scale), pointer(out), rows, columns, block_rows, block_columns) is None
    spread = np.repeat(np.repeat(scale, block_rows, axis=0), block_columns, axis=1)[:rows, :columns]
    same_bits(out, (e4m3(weight) * spread).astype(np.float16))
