"""Our device code as machine code and as text: NVRTC 12.6, ptxas 12.6, nvdisasm. No GPU is needed.

nvdisasm must know the architecture: those of CUDA 13 forgot sm_70. The Python package triton 3.4.0 brings one of
CUDA 12 (`pip download --no-deps triton==3.4.0`, unpack, triton/backends/nvidia/bin/nvdisasm).
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.kernels.sass import Function, functions
from tests.unit.volta.device_compiler import Kernel, assemble, ptx_of


class MissingTool(Exception):
    """What is missing and how to get it."""


@dataclass(frozen=True)
class MachineCode:
    """All kernels for one architecture: what they do and which resources they take, by their names."""

    architecture: str
    functions: dict[str, Function]
    resources: dict[str, Kernel]


def machine_code(sources: Path, architecture: str, nvdisasm: Path, scratch: Path) -> MachineCode:
    """device_code.cu in `sources` as compute_70 PTX, assembled for `architecture` (as sm_70)."""
    unit = sources / "device_code.cu"
    kernels = assemble(ptx_of(unit.read_text(encoding="utf-8"), unit.name, sources), scratch, architecture)
    command = [str(nvdisasm), "-c", str(scratch / "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingTool(f"{nvdisasm} does not read {architecture}: {done.stderr.strip()}")
    return MachineCode(architecture, functions(done.stdout), {kernel.name: kernel for kernel in kernels})


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
