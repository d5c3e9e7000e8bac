"""The driver."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import Nvidia
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, HEALTHY, HUNG, NO_NVML, WITHOUT_GPU, a100, device, with_nvidia

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
    case("driver.last-branch", "pass", "supports Ampere", with_nvidia(driver_version="595.45.04", gpus=(a100(0),))),
    case(
        "driver.last-branch",
        "fail",
        "Driver 595 no longer supports Volta",
        with_nvidia(driver_version="595.45.04", gpus=()),
    ),
    case("driver.last-branch", "skip", "architecture of the GPUs", with_nvidia(gpus=()), None),
    case("driver.kernel-module", "pass", "proprietary kernel module drives Volta", HEALTHY),
    case("driver.kernel-module", "fail", "does not drive Volta", with_nvidia(kernel_module_open=True)),
    case(
        "driver.kernel-module",
        "pass",
        "open kernel module drives Ampere",
        with_nvidia(kernel_module_open=True, gpus=(a100(0),)),
    ),
    case("driver.kernel-module", "skip", "flavour", with_nvidia(kernel_module_open=None)),
]
