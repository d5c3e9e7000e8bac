"""Our device code as machine code and as text: NVRTC 12.6, ptxas 12.6, nvdisasm. No GPU is needed.

nvdisasm must know the architecture: those of CUDA 13 forgot sm_70. The Python package triton 3.4.0 brings one of
CUDA 12 (`pip download --no-deps triton==3.4.0`, unpack, triton/backends/nvidia/bin/nvdisasm).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.sass import Function, functions
from tests.unit.volta.device_compiler import assemble, ptx_of

MOST_THREADS = re.compile(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)")


class MissingTool(Exception):
    """What is missing and how to get it."""


@dataclass(frozen=True)
class Resources:
    """Of one thread: registers, and bytes that go to memory and back for want of them."""

    registers: int
    spilled_bytes: int


@dataclass(frozen=True)
class MachineCode:
    """All kernels for one architecture: what they do, which resources they take, threads of a block, by their names."""

    architecture: str
    functions: dict[str, Function]
    resources: dict[str, Resources]
    threads: dict[str, int]


def machine_code(sources: Path, architecture: str, nvdisasm: Path, scratch: Path) -> MachineCode:
    """device_code.cu in `sources` as compute_70 PTX, assembled for `architecture` (as sm_70)."""
    unit = sources / "device_code.cu"
    return assembled(ptx_of(unit.read_text(encoding="utf-8"), unit.name, sources), architecture, nvdisasm, scratch)


def assembled(ptx: str, architecture: str, nvdisasm: Path, scratch: Path) -> MachineCode:
    """PTX as machine code for an architecture. Raises MissingTool when nvdisasm does not know it."""
    kernels = assemble(ptx, scratch, architecture)
    command = [str(nvdisasm), "-c", str(scratch / "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingTool(f"{nvdisasm} does not read {architecture}: {done.stderr.strip()}")
    resources = {each.name: Resources(each.registers, each.spill_stores + each.spill_loads) for each in kernels}
    return MachineCode(architecture, functions(done.stdout), resources, most_threads(ptx))


def most_threads(ptx: str) -> dict[str, int]:
    """Of the kernels that say how many threads a block has at most, by their names."""
    return {name: int(count) for name, count in MOST_THREADS.findall(ptx)}


def find_nvdisasm(given: Path | None) -> Path:
    """The one given, that of an installed triton, or the one on PATH. Raises MissingTool where there is none."""
    for candidate in _candidates(given):
        if candidate.is_file():
            return candidate
    raise MissingTool(
        "nvdisasm is not there: name one with --nvdisasm. One of CUDA 12 is in the package triton 3.4.0: "
        "pip download --no-deps triton==3.4.0, unzip, triton/backends/nvidia/bin/nvdisasm"
    )


def _candidates(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    spec = importlib.util.find_spec("triton")
    for location in (spec and spec.submodule_search_locations) or ():
        yield Path(location, "backends", "nvidia", "bin", "nvdisasm")
    if on_path := shutil.which("nvdisasm"):
        yield Path(on_path)
