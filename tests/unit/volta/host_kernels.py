"""The kernels of csrc/device_code.cu as host code: their thread blocks run one after the other (host_cuda)."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onecat.patching.series import ADDED, load_series
from tests.unit.volta import panel_packer
from tests.unit.volta.compiled import sources_of

CSRC = load_series("vllm-0.27.1").directory / ADDED / "vllm_volta" / "csrc"
HOST_CUDA = Path(__file__).parent / "host_cuda"
OPTIONS = (
    *("-std=c++17", "-Wall", "-Wextra", "-Werror", "-fPIC"),
    # What is usual in kernels: pragmas of CUDA's compilers, numbers of threads next to signed ones, fields that are
    # zero, bits of a pair of numbers as those of a word.
    *("-Wno-unknown-pragmas", "-Wno-sign-compare", "-Wno-missing-field-initializers", "-fno-strict-aliasing"),
    # One rounding for each operation, and jumps between stacks (thread_blocks.cpp).
    *("-ffp-contract=off", "-U_FORTIFY_SOURCE"),
)
# Misaligned reads, overflowing integers and the like end in a signal.
KERNEL_OPTIONS = ("-O1", "-fsanitize=undefined", "-fno-sanitize=vptr", "-fsanitize-undefined-trap-on-error")
MACHINE_OPTIONS = ("-O3",)
KERNEL_SOURCES = ("kernels.cpp", "faulty_kernels.cpp")
MACHINE_SOURCES = ("thread_blocks.cpp", "tensor_cores.cpp", "guarded_memory.cpp")

# The most tokens of each kernel, as the source has them.
_KERNEL = re.compile(r"VOLTA_PANEL_KERNEL\(NAME, FORMAT, LAYOUT, (\d+)")
KERNEL_TOKENS = tuple(int(most) for most in _KERNEL.findall((CSRC / "panel_matmul.cuh").read_text(encoding="utf-8")))

Array = NDArray[Any]


class KernelFault(Exception):
    """What the emulation found wrong with a kernel."""


class PanelMatmul(ctypes.Structure):
    """struct PanelMatmul of panels.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "codes", "scales", "row_scale", "bias", "out", "partial")),
        ("arrivals", ctypes.c_void_p),
        *((name, ctypes.c_longlong) for name in ("x_stride", "out_stride")),
        *((name, ctypes.c_int) for name in ("m", "n", "k", "block_rows", "block_columns")),
    ]


class PanelDequantize(ctypes.Structure):
    """struct PanelDequantize of panels.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("codes", "scales", "row_scale", "out")),
        *((name, ctypes.c_int) for name in ("first", "last", "k", "block_rows", "block_columns")),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_uint)
            for name in ("blocks", "width", "height", "threads", "resident", "chance", "dynamic_bytes")
        ),
        *((name, ctypes.c_void_p) for name in ("block_order", "thread_order")),
    ]


@dataclass(frozen=True)
class Order:
    """In which order blocks run and threads go on, and at which end of its pages memory lies.

    seed: None for the order of numbers, else for a shuffled one. reverse: the same backwards. resident: blocks that run
    at a time, at most 4; of more than one, chance (the seed) decides which goes on.
    """

    seed: int | None = None
    reverse: bool = False
    at_end: bool = True
    resident: int = 1

    def of(self, count: int) -> Array:
        """A permutation of `count` numbers."""
        numbers = np.arange(count, dtype=np.uint32)
        if self.seed is not None:
            numbers = np.random.default_rng(self.seed).permutation(numbers)
        return np.ascontiguousarray(numbers[::-1] if self.reverse else numbers)


IN_ORDER = Order()
REVERSED = Order(reverse=True, at_end=False)
ORDERS = (IN_ORDER, REVERSED, Order(seed=5, resident=4), Order(seed=6, reverse=True, at_end=False, resident=3))


class Memory:
    """Buffers between forbidden pages; those that are not written yet hold nothing but NaN."""

    def __init__(self, library: ctypes.CDLL, at_end: bool) -> None:
        self._library = library
        self._at_end = at_end
        self._buffers: list[tuple[int, int]] = []

    def empty(self, shape: tuple[int, ...], kind: Any) -> Array:
        """A buffer that kernels write."""
        count = int(np.prod(shape))
        size = count * np.dtype(kind).itemsize
        address = self._library.guarded_allocate(size, int(self._at_end))
        assert address is not None
        self._buffers.append((address, size))
        raw = (ctypes.c_ubyte * size).from_address(address)
        return np.frombuffer(raw, kind, count).reshape(shape)

    def copy(self, values: Array) -> Array:
        """A buffer that kernels only read."""
        buffer = self.empty(values.shape, values.dtype)
        buffer[...] = values
        self._library.guarded_protect(*self._buffers[-1])
        return buffer

    def check(self) -> None:
        """Raise KernelFault where something was written beside the buffers."""
        if not all(self._library.guarded_is_intact(*buffer) for buffer in self._buffers):
            raise KernelFault("wrote beside a buffer")

    def free(self) -> None:
        for buffer in self._buffers:
            self._library.guarded_free(*buffer)


@dataclass(frozen=True)
class Weight:
    """A quantised weight [n, k].

    codes: NVFP4 (0 to 15) or E4M3 codes. scales: NVFP4's E4M3 codes [n, k / 16]; FP8's fp32 for blocks of block_rows x
    block_columns, or None.
    """

    form: str
    codes: Array
    scales: Array | None
    block_rows: int = 0
    block_columns: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        n, k = self.codes.shape
        return n, k

    def panels(self, fragments: str) -> tuple[Array, Array | None]:
        """Codes and scales as kernels take them."""
        if self.form == "fp8":
            return panel_packer.fp8_codes(self.codes, fragments), self.scales
        assert self.scales is not None
        return panel_packer.nvfp4_codes(self.codes, fragments), panel_packer.nvfp4_scales(self.scales, fragments)


@dataclass(frozen=True)
class Plan:
    """How a multiplication is started: the kernel for up to `tokens` tokens, and the number of thread blocks."""

    tokens: int
    blocks: int


class HostKernels:
    """The library that `build` made."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        allocate = self.library.guarded_allocate
        allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int]
        for name in ("guarded_protect", "guarded_is_intact", "guarded_free"):
            getattr(self.library, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        starters = ("run_panel_matmul", "run_panel_dequantize", "run_paged_attention", "run_cache_write", "run_words")
        for name in (*starters, "nvfp4", "fp8", "fp8_unaligned"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.one_e4m3.restype = self.library.one_e2m1.restype = ctypes.c_float
        assert self.library.panel_matmul_bytes() == ctypes.sizeof(PanelMatmul)
        assert self.library.panel_dequantize_bytes() == ctypes.sizeof(PanelDequantize)

    @property
    def rows(self) -> int:
        """Rows that a thread block multiplies at once."""
        return panel_packer.PANEL_ROWS * int(self.library.panel_warps())

    def units(self, n: int, k: int) -> int:
        """Units of work for a weight [n, k], and so the most thread blocks."""
        return -(-n // self.rows) * -(-k // panel_packer.PANEL_COLUMNS)

    @contextmanager
    def memory(self, order: Order) -> Iterator[Memory]:
        """Buffers that live as long as the context, checked at its end."""
        memory = Memory(self.library, order.at_end)
        try:
            yield memory
            memory.check()
        finally:
            memory.free()

    def launch(
        self,
        starter: str,
        kernel: str,
        work: Any,
        grid: int | tuple[int, int, int],
        order: Order,
        threads: int,
        dynamic_bytes: int = 0,
    ) -> None:
        """Run a kernel on a grid of so many blocks along x, y and z; `work` is what its starter of kernels.cpp takes.

        dynamic_bytes: of shared memory, a multiple of 16. Raises KernelFault.
        """
        width, height, depth = (grid, 1, 1) if isinstance(grid, int) else grid
        blocks = width * height * depth
        block_order, thread_order = order.of(blocks), order.of(threads)
        launch = _Launch(
            blocks=blocks,
            width=width,
            height=height,
            threads=threads,
            resident=order.resident,
            chance=order.seed or 0,
            dynamic_bytes=dynamic_bytes,
            block_order=block_order.ctypes.data,
            thread_order=thread_order.ctypes.data,
        )
        address = ctypes.cast(getattr(self.library, kernel), ctypes.c_void_p)
        self.check(getattr(self.library, starter)(address, work, ctypes.byref(launch)))

    def check(self, message: bytes | None) -> None:
        """Raise KernelFault with what a function of the library returned."""
        if message is not None:
            raise KernelFault(message.decode())

    def multiply(
        self,
        weight: Weight,
        fragments: str,
        x: Array,
        row_scale: Array,
        bias: Array | None,
        plan: Plan,
        order: Order = IN_ORDER,
        gap: int = 0,
    ) -> Array:
        """x w^T in fp16 [m, n], by a kernel {nvfp4,fp8}_panels_*; `gap` bytes of NaN lie between rows of x and of out.

        Raises KernelFault, also where arrivals are not zero again.
        """
        (m, k), (n, _) = x.shape, weight.shape
        codes, scales = weight.panels(fragments)
        with self.memory(order) as memory:
            wide = np.full((m, k + gap // 2), np.nan, np.float16)
            wide[:, :k] = x
            # The last row ends where the memory does.
            x_buffer = memory.copy(wide.reshape(-1)[: wide.size - gap // 2])
            out = memory.empty((m, n + gap // 2), np.float16)
            partial = memory.empty((2 * plan.blocks, plan.tokens, self.rows), np.float32)
            arrivals = memory.empty((-(-n // self.rows),), np.uint32)
            arrivals[:] = 0
            buffers = [memory.copy(each) if each is not None else None for each in (codes, scales, row_scale, bias)]
            addresses = [each.ctypes.data if each is not None else None for each in buffers]
            work = PanelMatmul(
                x_buffer.ctypes.data,
                *addresses,
                out.ctypes.data,
                partial.ctypes.data,
                arrivals.ctypes.data,
                wide.shape[1],
                out.shape[1],
                *(m, n, k, weight.block_rows, weight.block_columns),
            )
            kernel = f"{weight.form}_panels_{fragments}_{plan.tokens}"
            threads = 32 * self.library.panel_warps()
            self.launch("run_panel_matmul", kernel, ctypes.byref(work), plan.blocks, order, threads)
            if arrivals.any():
                raise KernelFault(f"arrivals are left: {arrivals}")
            if not (out[:, n:].view(np.uint16) == 0xFFFF).all():
                raise KernelFault("wrote between the rows of the result")
            return out[:, :n].copy()

    def dequantize(
        self,
        weight: Weight,
        fragments: str,
        row_scale: Array | None,
        rows: tuple[int, int],
        blocks: int,
        order: Order = IN_ORDER,
    ) -> Array:
        """The rows from the first (a multiple of 32) to before the second, in fp16, by dequantize_*_panels_*."""
        k = weight.shape[1]
        codes, scales = weight.panels(fragments)
        with self.memory(order) as memory:
            out = memory.empty((rows[1] - rows[0], k), np.float16)
            buffers = [memory.copy(each) if each is not None else None for each in (codes, scales, row_scale)]
            addresses = [each.ctypes.data if each is not None else None for each in buffers]
            work = PanelDequantize(*addresses, out.ctypes.data, *rows, k, weight.block_rows, weight.block_columns)
            kernel = f"dequantize_{weight.form}_panels_{fragments}"
            threads = 32 * self.library.dequantize_warps()
            self.launch("run_panel_dequantize", kernel, ctypes.byref(work), blocks, order, threads)
            return out.copy()


def device_sources() -> tuple[Path, ...]:
    """device_code.cu and all that it includes."""
    return sources_of(CSRC / "device_code.cu")


def inputs(compiler: str) -> tuple[str, ...]:
    """All that the library depends on."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
    files = (*sorted(HOST_CUDA.iterdir()), *device_sources())
    texts = (path.read_text(encoding="utf-8") for path in files)
    return (version, *OPTIONS, *KERNEL_OPTIONS, *MACHINE_OPTIONS, *texts)


def build(compiler: str, library: Path) -> None:
    """Compile the kernels and what runs them into a shared library."""
    with tempfile.TemporaryDirectory() as folder:
        objects: list[str] = []
        for options, sources in ((KERNEL_OPTIONS, KERNEL_SOURCES), (MACHINE_OPTIONS, MACHINE_SOURCES)):
            for source in sources:
                objects.append(str(Path(folder) / f"{source}.o"))
                command = [compiler, *OPTIONS, *options, f"-I{HOST_CUDA}", f"-I{CSRC}"]
                subprocess.run([*command, "-c", str(HOST_CUDA / source), "-o", objects[-1]], check=True)
        subprocess.run([compiler, "-shared", *objects, "-o", str(library)], check=True)
