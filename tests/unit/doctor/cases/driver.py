"""The driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.facts import EngineEnvironment, Facts, KernelEvent, Nvidia
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import (
    COMPLETE,
    CPU,
    HEALTHY,
    HUNG,
    NO_NVML,
    NOTHING_KNOWN,
    WITHOUT_GPU,
    a100,
    device,
    with_events,
    with_nvidia,
    with_system,
)

UNKNOWN = device(0, device_id="ffff")
NO_MODULE = replace(
    WITHOUT_GPU, nvidia=Nvidia(library_found=True, nouveau_loaded=False, pci_devices=(device(0, driver=None),))
)
API_MISMATCH = KernelEvent(
    "version-mismatch",
    "NVRM: API mismatch: the client has the version 570.124, but this kernel module has the version 580.95.05",
)
IGNORED = KernelEvent(
    "gpu-ignored",
    "NVRM: The NVIDIA GPU is supported through the NVIDIA 580.xx Legacy drivers. The driver will ignore this GPU.",
    "0000:3b:00.0",
)
REFUSED = KernelEvent("module-refused", "Loading of module with unavailable key is rejected")
TOOLKIT_12 = ("/usr/local/cuda-12.6", "12.6")
TOOLKIT_13 = ("/usr/local/cuda", "13.0")


def driver(version: str) -> Facts:
    """The healthy host with another driver."""
    return with_nvidia(driver_version=version, kernel_module_version=version)


def torch(cuda: str, version: str = "580.95.05", **changes: Any) -> Facts:
    """PyTorch for a version of CUDA in the host's own Python, with some driver."""
    return replace(driver(version), engines=(EngineEnvironment("host", "2.9.0", cuda, **changes),))


def compat(path: str) -> Facts:
    """A libcuda of a compatibility package that the loader finds."""
    return with_nvidia(compat_libraries=(path,))


CASES: list[Case] = [
    case("driver.loaded", "pass", "580.95.05 (proprietary)", HEALTHY),
    case("driver.loaded", "pass", "Driver 580.95.05", with_nvidia(kernel_module_version=None)),
    case(
        "driver.loaded",
        "fail",
        "is not loaded",
        replace(WITHOUT_GPU, nvidia=Nvidia(library_found=False, pci_devices=(device(0, driver=None),))),
    ),
    case("driver.loaded", "skip", "there is no NVIDIA GPU", WITHOUT_GPU),
    case("driver.nouveau", "pass", "drives no NVIDIA device", HEALTHY),
    case(
        "driver.nouveau",
        "fail",
        "nouveau drives the NVIDIA devices",
        with_nvidia(gpus=(), nouveau_loaded=True, pci_devices=(device(0, driver="nouveau"),)),
    ),
    case(
        "driver.nouveau",
        "info",
        "another NVIDIA device",
        with_nvidia(nouveau_loaded=True, pci_devices=(device(0), device(1, driver="nouveau"))),
    ),
    case("driver.nouveau", "skip", "not known", with_nvidia(nouveau_loaded=None)),
    case("driver.nvml", "pass", "580.95.05 answers", HEALTHY),
    case(
        "driver.nvml",
        "fail",
        "of different versions",
        with_nvidia(nvml_error="Driver/library version mismatch", gpus=()),
    ),
    case("driver.nvml", "fail", "may not use the GPU device files", with_nvidia(nvml_error="Insufficient Permissions")),
    case("driver.nvml", "fail", "NVML refuses to start", with_nvidia(nvml_error="Unknown Error")),
    case("driver.nvml", "fail", "The driver hangs", HUNG),
    case("driver.nvml", "fail", "libnvidia-ml.so.1 is not there", NO_NVML),
    case("driver.nvml", "skip", "there is no NVIDIA GPU", WITHOUT_GPU),
    case("driver.minimum", "pass", "Driver 580.95.05 runs CUDA 12", HEALTHY),
    case("driver.minimum", "pass", "Driver 535.54.03", with_nvidia(driver_version="535.54.03")),
    case(
        "driver.minimum", "fail", "Driver 470.256.02 is too old for CUDA 12", with_nvidia(driver_version="470.256.02")
    ),
    case("driver.minimum", "skip", "uses no NVIDIA GPU", HEALTHY, CPU),
    case("driver.minimum", "skip", "not known", with_nvidia(driver_version=None, kernel_module_version=None)),
    case("driver.last-branch", "pass", "the last branch is 580", HEALTHY),
    case(
        "driver.last-branch",
        "pass",
        "supports Ampere",
        with_nvidia(driver_version="595.45.04", gpus=(a100(0),), pci_devices=()),
    ),
    case(
        "driver.last-branch",
        "fail",
        "Driver 595 no longer supports Volta",
        with_nvidia(driver_version="595.45.04", gpus=()),
    ),
    # The driver ignores the card: its number on the bus tells what it is.
    case(
        "driver.last-branch", "fail", "no longer supports Volta", with_nvidia(driver_version="595.45.04", gpus=()), None
    ),
    case(
        "driver.last-branch",
        "pass",
        "supports Ampere",
        with_nvidia(driver_version="595.45.04", gpus=(a100(0),), pci_devices=(device(1, driver="vfio-pci"),)),
    ),
    case("driver.last-branch", "skip", "architecture of the GPUs", with_nvidia(gpus=(), pci_devices=(UNKNOWN,)), None),
    case("driver.kernel-module", "pass", "proprietary kernel module drives Volta", HEALTHY),
    case("driver.kernel-module", "fail", "does not drive Volta", with_nvidia(kernel_module_open=True)),
    case(
        "driver.kernel-module",
        "pass",
        "open kernel module drives Ampere",
        with_nvidia(kernel_module_open=True, gpus=(a100(0),), pci_devices=()),
    ),
    case("driver.kernel-module", "skip", "flavour", with_nvidia(kernel_module_open=None)),
    case("driver.loaded", "skip", "driver is that of Windows", with_system(NO_MODULE, virtualization="wsl")),
    case("driver.minimum", "pass", "Driver 580.95.05 runs CUDA 13", torch("13.0"), None),
    case("driver.minimum", "skip", "uses no NVIDIA GPU", torch("13.0", "550.54.14"), CPU),
    case("driver.minimum", "fail", "Driver 550.54.14 is too old for CUDA 13", torch("13.0", "550.54.14"), None),
    case("driver.minimum", "skip", "no PyTorch for CUDA", torch("9.2"), None),
    case("driver.last-branch", "fail", "Driver 595 no longer supports Volta", with_nvidia(driver_version="595.45.04")),
    # --- versions of its parts
    case("driver.versions", "pass", "All are 580.95.05", HEALTHY),
    case(
        "driver.versions",
        "fail",
        "The kernel module is 580.95.05, libcuda 570.124.06",
        with_nvidia(cuda_library_version="570.124.06"),
    ),
    case(
        "driver.versions",
        "fail",
        "libnvidia-ml 580.105.08 and libcuda 580.105.08",
        with_nvidia(gpus=(), library_version="580.105.08", cuda_library_version="580.105.08"),
    ),
    # NVML shows GPUs, so the library that was found is not the one that is used.
    case("driver.versions", "warn", "of another version", with_nvidia(library_version="570.124.06")),
    case("driver.versions", "warn", "of another version", with_events(API_MISMATCH)),
    case("driver.versions", "skip", "kernel module is not known", with_nvidia(kernel_module_version=None)),
    case("driver.versions", "skip", "libraries", with_nvidia(library_version=None, cuda_library_version=None)),
    case("driver.versions", "skip", "driver is that of Windows", with_system(HEALTHY, virtualization="wsl")),
    case("driver.next-boot", "pass", "The module on disk is 580.95.05", HEALTHY),
    case(
        "driver.next-boot",
        "warn",
        "The next boot loads kernel module 595.45.04, the libraries are 580.95.05",
        with_nvidia(kernel_module_file_version="595.45.04"),
    ),
    case("driver.next-boot", "skip", "module on disk", with_nvidia(kernel_module_file_version=None)),
    # --- branches
    case("driver.end-of-life", "pass", "Branch 580 (long-term support) is supported until 2028-06", HEALTHY),
    case("driver.end-of-life", "info", "Branch 535 (long-term support) has ended in 2026-06", driver("535.183.01")),
    case("driver.end-of-life", "info", "Branch 550 (production) has ended", driver("550.54.14")),
    case("driver.end-of-life", "skip", "no dates for the branch of 470.256.02", driver("470.256.02")),
    case("driver.end-of-life", "skip", "the day on which", replace(HEALTHY, collected_at=None)),
    case(
        "driver.end-of-life",
        "skip",
        "driver version is not known",
        with_nvidia(driver_version=None, kernel_module_version=None),
    ),
    # --- the kernel log
    case("driver.gpu-ignored", "pass", "tells of no GPU", COMPLETE),
    case("driver.gpu-ignored", "fail", "The driver ignores a GPU", with_events(IGNORED, gpus=())),
    case("driver.gpu-ignored", "skip", "kernel log was not read", HEALTHY),
    case("driver.module-refused", "pass", "tells of no refused module", COMPLETE),
    case(
        "driver.module-refused",
        "fail",
        "The kernel refused a module, and the NVIDIA module is not loaded",
        with_events(REFUSED, gpus=(), kernel_module_version=None),
    ),
    case("driver.module-refused", "info", "is loaded now", with_events(REFUSED)),
    case("driver.module-refused", "skip", "kernel log was not read", HEALTHY),
    # --- CUDA on the host
    case("cuda.toolkit", "pass", "CUDA 13.0 and 12.6", with_nvidia(toolkits=(TOOLKIT_13, TOOLKIT_12))),
    case(
        "cuda.toolkit",
        "info",
        "No toolkit on the host compiles for compute capability 7.0",
        with_nvidia(toolkits=(TOOLKIT_13,)),
    ),
    case("cuda.toolkit", "pass", "CUDA 13.0", with_nvidia(toolkits=(TOOLKIT_13,), gpus=(a100(0),))),
    case("cuda.toolkit", "skip", "none is needed", HEALTHY),
    case("cuda.compiler", "pass", "nvcc 12.4.131 fits PyTorch's CUDA 12.8", torch("12.8", compiler_version="12.4.131")),
    case(
        "cuda.compiler", "info", "nvcc is 11.7.99, PyTorch is for CUDA 12.1", torch("12.1", compiler_version="11.7.99")
    ),
    case("cuda.compiler", "skip", "no environment with both", torch("12.1")),
    case("cuda.compat-libraries", "pass", "finds no CUDA compatibility library", HEALTHY),
    case(
        "cuda.compat-libraries",
        "warn",
        "stands before the driver's own",
        compat("/usr/local/cuda-12.4/compat/libcuda.so.550.54.15"),
    ),
    case(
        "cuda.compat-libraries", "warn", "stands before the driver's own", compat("/usr/local/cuda/compat/libcuda.so.1")
    ),
    case(
        "cuda.compat-libraries",
        "info",
        "of the driver's own version",
        compat("/usr/local/cuda/compat/libcuda.so.580.95.05"),
    ),
    case(
        "cuda.compat-libraries",
        "info",
        "CUDA programs use driver libraries 590.44.01",
        compat("/usr/local/cuda/compat/libcuda.so.590.44.01"),
    ),
    case(
        "cuda.compat-libraries",
        "fail",
        "keeps CUDA from starting",
        torch("12.8", error="RuntimeError: Error 803: system has unsupported display driver / cuda driver combination"),
    ),
    case("cuda.compat-libraries", "skip", "the loader was not asked", with_nvidia(library_found=None)),
    case("cuda.compat-libraries", "skip", "no NVIDIA facts", NOTHING_KNOWN),
]
