"""NVIDIA's compilers from the Python packages of the development environment: NVRTC makes PTX, ptxas machine code."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(f"nvidia.{name}")
    assert spec is not None, f"the development environment has no package nvidia.{name}"
    [location] = spec.submodule_search_locations or ()
    return Path(location)


PTXAS = _package("cuda_nvcc") / "bin" / "ptxas"
HEADERS = tuple(_package(name) / "include" for name in ("cuda_runtime", "cuda_nvcc"))
NVRTC = _package("cuda_nvrtc") / "lib" / "libnvrtc.so.12"
VERSIONS = tuple(importlib.metadata.version(f"nvidia-cuda-{name}-cu12") for name in ("nvcc", "nvrtc", "runtime"))


class CompilationError(Exception):
    """What the compiler said."""


@dataclass(frozen=True)
class Kernel:
    """What ptxas tells of one kernel: registers per thread; bytes of spilled registers, of stack, of shared memory."""

    name: str
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int


@dataclass(frozen=True)
class LaunchBounds:
    """What a kernel promises: the most threads of a block; so many such blocks fit a multiprocessor (0: not said)."""

    threads: int
    blocks: int


@dataclass(frozen=True)
class DeviceCode:
    """csrc/device_code.cu compiled for 7.0: PTX, that of each kernel, and what each kernel uses as machine code."""

    ptx: str
    bodies: dict[str, str]
    kernels: dict[str, Kernel]


def ptx_of(source: str, name: str, include: Path, architecture: str = "compute_70") -> str:
    """PTX for `architecture` of a CUDA source without host code; quoted includes are looked for in `include`.

    Raises CompilationError with the compiler's log.
    """
    nvrtc = ctypes.CDLL(str(NVRTC))
    program = ctypes.c_void_p()
    arguments = (source.encode(), name.encode(), 0, None, None)
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), *arguments) == 0
    options = [f"--gpu-architecture={architecture}", "--std=c++17", f"-I{include}", *(f"-I{each}" for each in HEADERS)]
    encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    code = nvrtc.nvrtcCompileProgram(program, len(options), encoded)
    size = ctypes.c_size_t()
    if code != 0:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise CompilationError(log.value.decode())
    assert nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
    ptx = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetPTX(program, ptx) == 0
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx.value.decode()


def bodies_of(ptx: str) -> dict[str, str]:
    """What PTX has of each kernel, from its parameters on, by name."""
    return {entry.split("(")[0].strip(): entry for entry in ptx.split(".entry ")[1:]}


def bounds_of(body: str) -> LaunchBounds:
    """The launch bounds in a kernel's PTX."""
    threads = re.search(r"^\.maxntid (\d+), 1, 1$", body, re.MULTILINE)
    blocks = re.search(r"^\.minnctapersm (\d+)$", body, re.MULTILINE)
    assert threads is not None, "the kernel has no launch bounds"
    return LaunchBounds(int(threads[1]), int(blocks[1]) if blocks is not None else 0)


def assemble(ptx: str, directory: Path, architecture: str = "sm_70") -> tuple[Kernel, ...]:
    """Machine code for `architecture`, made and forgotten; what its kernels use.

    Raises CompilationError when the assembler refuses, as it does for an instruction the architecture lacks.
    """
    return tuple(read_report(report_of(ptx, directory, architecture)).values())


def report_of(ptx: str, directory: Path, architecture: str = "sm_70") -> str:
    """What ptxas prints of the kernels; raises CompilationError as `assemble` does."""
    source = directory / "kernels.ptx"
    source.write_text(ptx, encoding="utf-8")
    command = [str(PTXAS), f"-arch={architecture}", "-v", str(source), "-o", str(directory / "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompilationError(done.stderr)
    return done.stderr


def read_report(report: str) -> dict[str, Kernel]:
    """The kernels of what ptxas printed, by name."""
    row = re.compile(
        r"Function properties for (\S+)\n"
        r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
        r"ptxas info\s*: Used (\d+) registers(?:.*?(\d+) bytes smem)?"
    )
    return {
        name: Kernel(name, int(registers), int(stores), int(loads), int(stack), int(shared or 0))
        for name, stack, stores, loads, registers, shared in row.findall(report)
    }


def blocks_at_once(kernel: Kernel, threads: int) -> int:
    """Thread blocks that a multiprocessor of 7.0 holds.

    CUDA C++ programming guide, compute capabilities: 64 warps, 32 blocks, 65536 registers (dealt out to warps, by 256),
    96 KB of shared memory (dealt out by 256 bytes).
    """
    warps = -(-threads // 32)
    registers_of_a_warp = -(-kernel.registers * 32 // 256) * 256
    limits = [32, 64 // warps, 65536 // registers_of_a_warp // warps]
    if kernel.shared:
        limits.append(96 * 1024 // (-(-kernel.shared // 256) * 256))
    return min(limits)
