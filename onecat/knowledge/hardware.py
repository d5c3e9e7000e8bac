"""Reads the tables about GPUs, drivers and NVML's errors as typed records."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class Architecture:
    """last_driver_branch: the last one that supports it, None while it is current."""

    name: str
    compute_capabilities: tuple[str, ...]
    open_kernel_module: Literal["refused", "supported"]
    source: tuple[str, ...]
    last_driver_branch: int | None = None


@dataclass(frozen=True)
class GpuModel:
    """A product by the name that NVML reports.

    memory_clock_mhz, bar1_mib: as a healthy card shows them, None where no source is known.
    device_id: its number on the PCI bus, as 1db6. short: other names that people type. memory_mib: of the whole card.
    bandwidth_gb_s: of its memory; nvlink_gb_s: of all its NVLinks, both directions together, None without NVLink; both
    in 10^9 bytes per second. fp16_tflops: peak of its tensor cores. nvlink_bridge: NVLink needs a bridge between cards.
    pcie_generation: of its connector.
    """

    name: str
    compute_capability: str
    source: tuple[str, ...]
    memory_clock_mhz: int | None = None
    bar1_mib: int | None = None
    device_id: str | None = None
    short: tuple[str, ...] = ()
    memory_mib: int | None = None
    bandwidth_gb_s: float | None = None
    nvlink_gb_s: float | None = None
    nvlink_bridge: bool = False
    pcie_generation: int | None = None
    fp16_tflops: float | None = None

    @property
    def capability(self) -> int:
        """The compute capability, ten times."""
        return int(self.compute_capability.replace(".", ""))


@dataclass(frozen=True)
class CudaFamily:
    """The least driver that runs programs built with CUDA `family`.x."""

    family: int
    minimum_driver: str
    source: str


@dataclass(frozen=True)
class DriverBranch:
    """A branch of NVIDIA's data-centre drivers. end: year and month of its last update, None when it has ended."""

    branch: int
    kind: str
    source: tuple[str, ...]
    end: str | None = None


@dataclass(frozen=True)
class NvmlError:
    """What it means when NVML says `text` at its start."""

    text: str
    title: str
    why: str
    fix: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True)
class SystemLibrary:
    """A shared library by its file name, and the packages that hold it."""

    file: str
    debian: str
    redhat: str


@dataclass(frozen=True)
class EngineBuild:
    """What an engine's ready-made files need from the system. glibc: the least version."""

    engine: str
    version: str
    machine: str
    glibc: str
    libraries: tuple[SystemLibrary, ...]
    source: tuple[str, ...]


def architecture(compute_capability: str | None) -> Architecture | None:
    """The architecture of a compute capability such as "7.0", or None when the table does not know it."""
    return next((each for each in architectures() if compute_capability in each.compute_capabilities), None)


def gpu_model(name: str) -> GpuModel | None:
    """The product with this NVML name, or None when the table does not know it."""
    # Drivers before 465 say "A100-SXM4-40GB" where newer ones say "NVIDIA A100-SXM4-40GB".
    return next((each for each in gpu_models() if each.name in (name, f"NVIDIA {name}")), None)


def gpu_model_by_device(device_id: str) -> GpuModel | None:
    """The product with this number on the PCI bus, or None when the table does not know it."""
    return next((each for each in gpu_models() if each.device_id == device_id.lower()), None)


def find_gpu(text: str) -> GpuModel | None:
    """The product that a person means by `Tesla V100-PCIE-32GB`, `v100-32g`, `H100` or `rtx3090`; None for none."""

    def plain(name: str) -> str:
        letters = "".join(each for each in name.lower().removeprefix("nvidia ") if each.isalnum())
        return re.sub(r"(?<=[0-9])gb", "g", letters.replace("geforce", ""))

    wanted = plain(text.strip())
    named = [each for each in gpu_models() if wanted in {plain(name) for name in (each.name, *each.short)}]
    return gpu_model(text) or next(iter(named), None)


def gpu_names() -> tuple[str, ...]:
    """The shortest name of each product whose memory is known."""
    return tuple(each.short[0] for each in gpu_models() if each.short and each.memory_mib is not None)


def nvml_error(text: str) -> NvmlError:
    """The meaning of an error text of NVML; there is a row for any text."""
    return next(each for each in nvml_errors() if each.text in text)


def engine_build(engine: str, version: str) -> EngineBuild | None:
    """What the build of an engine needs from the system, or None when onecat knows none."""
    return next((each for each in engine_builds() if (each.engine, each.version) == (engine, version)), None)


@functools.cache
def architectures() -> tuple[Architecture, ...]:
    """Every row of gpus.yaml about architectures."""
    return tuple(Architecture(**frozen(row)) for row in table("gpus.yaml")["architectures"])


@functools.cache
def gpu_models() -> tuple[GpuModel, ...]:
    """Every row of gpus.yaml about products."""
    return tuple(GpuModel(**frozen(row)) for row in table("gpus.yaml")["gpus"])


@functools.cache
def cuda_families() -> tuple[CudaFamily, ...]:
    """Every row of drivers.yaml about CUDA families, oldest first."""
    return tuple(CudaFamily(**row) for row in table("drivers.yaml")["cuda_families"])


@functools.cache
def driver_branches() -> tuple[DriverBranch, ...]:
    """Every row of drivers.yaml about branches."""
    return tuple(DriverBranch(**frozen(row)) for row in table("drivers.yaml")["branches"])


@functools.cache
def nvml_errors() -> tuple[NvmlError, ...]:
    """Every row of nvml_errors.yaml."""
    return tuple(NvmlError(**frozen(row)) for row in table("nvml_errors.yaml"))


@functools.cache
def engine_builds() -> tuple[EngineBuild, ...]:
    """Every row of engine_builds.yaml."""
    return tuple(
        EngineBuild(**frozen({**row, "libraries": [SystemLibrary(**each) for each in row["libraries"]]}))
        for row in table("engine_builds.yaml")
    )
