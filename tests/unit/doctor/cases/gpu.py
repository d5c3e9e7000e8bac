"""The GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.config import Profile
from onecat.facts import DockerImage, EngineEnvironment, Facts, Gpu, GpuProcess, KernelEvent, LoadMeasurement
from tests.unit.doctor.cases.form import Case, both, case
from tests.unit.doctor.examples import (
    COMPLETE,
    CPU,
    DOCKER,
    GIB,
    H200,
    HEALTHY,
    NO_NVML,
    NOTHING_KNOWN,
    V100,
    WITHOUT_GPU,
    a100,
    device,
    h200,
    two,
    v100,
    with_events,
    with_gpus,
    with_hardware,
    with_nvidia,
)

INIT_FAILED = KernelEvent(
    "gpu-init-failed", "NVRM: GPU 0000:af:00.0: RmInitAdapter failed! (0x24:0xffff:1417)", "0000:af:00.0"
)

NONE_STARTED = KernelEvent("gpu-init-failed", "NVRM: None of the NVIDIA devices were initialized.")
NO_ANSWER = KernelEvent("gsp-timeout", "NVRM: GPU0 GSP RPC buffer contains function 76", "0000:3b:00.0")


def xid(number: int, text: str, **changes: Any) -> KernelEvent:
    """A line of the kernel log about the second GPU."""
    line = f"NVRM: Xid (PCI:0000:af:00): {number}, {text}"
    return KernelEvent("xid", line, "0000:af:00", number, **changes)


DOUBLE_BIT = xid(48, "DBE (double bit error) detected")
RETIRED = xid(63, "Dynamic Page Retirement: New retired page")
REMAPPED = xid(63, "Row Remapper: New row")
NO_RPC = xid(119, "Timeout waiting for RPC")


def one_gpu(gpu: Gpu | None = None, **changes: Any) -> Facts:
    """A host with one GPU, a V100 by default."""
    return replace(with_gpus(gpu or v100(0)), **changes)


def labelled(architectures: str) -> Facts:
    """The image of the V100 profile is there and tells for what it was built."""
    image = DockerImage("sha256:1", ("onecat/vllm-patched:0.27.1-sm70",), labels=((LABEL, architectures),))
    return one_gpu(docker=replace(DOCKER, images=(image,)))


def stock(version: str) -> Profile:
    """A profile that serves with the engine's own image."""
    image = {"base": f"vllm/vllm-openai:{version}", "tag": "onecat/vllm:test", "variables": {}}
    return V100.model_copy(update={"image": V100.image.model_copy(update=image)})


def torch(version: str, cuda: str, architectures: tuple[str, ...] | None = None) -> Facts:
    """PyTorch in the host's own Python."""
    return one_gpu(engines=(EngineEnvironment("host", version, cuda, architectures),))


LABEL = "io.onecat.cuda-architectures"

CASES: list[Case] = [
    case("gpu.present", "pass", "2 GPUs", HEALTHY),
    case("gpu.present", "fail", "No NVIDIA GPU", WITHOUT_GPU),
    case("gpu.present", "info", "No NVIDIA GPU", WITHOUT_GPU, None),
    case("gpu.present", "skip", "uses no NVIDIA GPU", WITHOUT_GPU, CPU),
    case("gpu.present", "fail", "2 NVIDIA devices on the PCI bus, none shown", NO_NVML),
    both("gpu.present", ("pass", "1 GPU"), ("warn", "the driver does not show it"), with_nvidia(gpus=(v100(0),))),
    case("gpu.present", "skip", "see driver.nvml", with_nvidia(gpus=(), nvml_error="Unknown Error")),
    case("gpu.present", "skip", "no NVIDIA facts", NOTHING_KNOWN),
    both("gpu.reachable", ("pass", ""), ("pass", ""), HEALTHY),
    both(
        "gpu.reachable",
        ("pass", "V100"),
        ("fail", "GPU is lost"),
        with_gpus(v100(0), Gpu(1, "unknown", error="GPU is lost")),
    ),
    case("gpu.reachable", "skip", "there is no NVIDIA GPU", WITHOUT_GPU),
    case("gpu.count", "pass", "2 GPUs, 2 needed", HEALTHY),
    case("gpu.count", "fail", "1 GPU found, the profile v100x2-pcie needs 2", with_gpus(v100(0))),
    case("gpu.count", "skip", "there is no NVIDIA GPU", WITHOUT_GPU),
    both("gpu.model", ("pass", "Tesla V100-PCIE-32GB"), ("warn", "A100"), with_gpus(v100(0), a100(1))),
    case("gpu.model", "skip", "names no model", HEALTHY, with_hardware(V100, gpu_names=())),
    both("gpu.compute-capability", ("pass", "7.0"), ("fail", "8.0, the profile"), with_gpus(v100(0), a100(1))),
    both("gpu.compute-capability", ("pass", "7.0"), ("pass", "7.0"), with_gpus(*two(compute_capability=None))),
    both(
        "gpu.compute-capability",
        ("pass", "7.0"),
        ("skip", "not known"),
        with_gpus(*two(name="NVIDIA PG999", compute_capability=None)),
    ),
    case("gpu.homogeneous", "pass", "2 times Tesla V100-PCIE-32GB", HEALTHY),
    case("gpu.homogeneous", "warn", "not alike", with_gpus(v100(0), a100(1))),
    case("gpu.homogeneous", "warn", "not alike", with_gpus(*two(memory_total=16 * GIB))),
    case("gpu.homogeneous", "skip", "one GPU only", with_gpus(v100(0))),
    both("gpu.memory-total", ("pass", "32 GiB"), ("fail", "16 GiB of memory"), with_gpus(*two(memory_total=16 * GIB))),
    both("gpu.memory-total", ("pass", "32 GiB"), ("skip", "not known"), with_gpus(*two(memory_total=None))),
    both("gpu.memory-held", ("pass", "0 GiB"), ("pass", "1 GiB"), with_gpus(*two(memory_used=GIB))),
    both("gpu.memory-held", ("pass", "0 GiB"), ("warn", "8 GiB of 32 GiB"), with_gpus(*two(memory_used=8 * GIB))),
    both("gpu.memory-held", ("pass", "0 GiB"), ("skip", "not known"), with_gpus(*two(memory_used=None))),
    both("gpu.ecc-errors", ("pass", ""), ("fail", "3 uncorrect"), with_gpus(*two(ecc_uncorrected_volatile=3))),
    both("gpu.ecc-errors", ("pass", ""), ("info", "1 uncorrect"), with_gpus(*two(ecc_uncorrected_aggregate=1))),
    both(
        "gpu.ecc-errors",
        ("pass", ""),
        ("skip", "ECC is off"),
        with_gpus(*two(ecc_enabled=False, ecc_uncorrected_volatile=None, ecc_uncorrected_aggregate=None)),
    ),
    both("gpu.retired-pages", ("pass", "0 pages"), ("pass", "5 pages"), with_gpus(*two(retired_pages=5))),
    both("gpu.retired-pages", ("pass", ""), ("warn", "wait to be"), with_gpus(*two(retired_pages_pending=True))),
    both("gpu.retired-pages", ("pass", ""), ("warn", "the card is worn"), with_gpus(*two(retired_pages=60))),
    case("gpu.retired-pages", "skip", "Ampere GPUs remap memory rows", with_gpus(a100(0))),
    case("gpu.row-remapping", "pass", "No row remapping", with_gpus(a100(0))),
    case("gpu.row-remapping", "fail", "could not be remapped", with_gpus(a100(0, remapped_rows_failure=True))),
    case("gpu.row-remapping", "warn", "waits to be remapped", with_gpus(a100(0, remapped_rows_pending=True))),
    case("gpu.row-remapping", "skip", "Volta GPUs retire memory pages", with_gpus(v100(0))),
    both("gpu.slowdown", ("pass", ""), ("fail", "by heat (hardware)"), with_gpus(*two(event_reasons=0x48))),
    both("gpu.slowdown", ("pass", ""), ("fail", "power brake"), with_gpus(*two(event_reasons=0x80))),
    both("gpu.slowdown", ("pass", ""), ("warn", "by heat (software)"), with_gpus(*two(event_reasons=0x20))),
    both("gpu.slowdown", ("pass", ""), ("skip", "not known"), with_gpus(*two(event_reasons=None))),
    case("gpu.memory-clock", "pass", "877 MHz", with_gpus(v100(0, memory_clock_mhz=405))),
    case("gpu.memory-clock", "info", "goes to 810 MHz", with_gpus(v100(0, memory_clock_max_mhz=810))),
    case("gpu.memory-clock", "skip", "not known", with_gpus(a100(0))),
    case("gpu.homogeneous", "skip", "memory size of the GPUs is not known", with_gpus(*two(memory_total=None))),
    # --- lost and not started
    case("gpu.fallen-off-bus", "pass", "2 GPUs on the bus", COMPLETE),
    case("gpu.fallen-off-bus", "pass", "2 GPUs on the bus (the kernel log was not read)", HEALTHY),
    case("gpu.fallen-off-bus", "fail", "has fallen off the bus", with_events(xid(79, "GPU has fallen off the bus."))),
    case(
        "gpu.fallen-off-bus",
        "fail",
        "has fallen off the bus",
        with_events(
            KernelEvent("gpu-fell-off", "NVRM: (PCI ID: 10de:1db6) installed in this system has fallen off the bus")
        ),
    ),
    case(
        "gpu.fallen-off-bus",
        "fail",
        "has fallen off the bus",
        with_nvidia(pci_devices=(device(0), device(1, responds=False))),
    ),
    case(
        "gpu.fallen-off-bus",
        "fail",
        "has fallen off the bus",
        with_gpus(v100(0), Gpu(1, "unknown", error="GPU is lost")),
    ),
    case("gpu.fallen-off-bus", "fail", "has fallen off", with_nvidia(gpus=(), nvml_error="GPU is lost")),
    case("gpu.fallen-off-bus", "pass", "tells of no GPU", with_events(gpus=())),
    case("gpu.fallen-off-bus", "skip", "kernel log was not read", with_nvidia(gpus=())),
    case("gpu.initialization", "pass", "tells of no GPU", COMPLETE),
    case("gpu.initialization", "info", "shows it now", with_events(INIT_FAILED)),
    case("gpu.initialization", "fail", "cannot start a GPU", with_events(INIT_FAILED, gpus=(v100(0),))),
    case("gpu.initialization", "info", "shows it now", with_events(NONE_STARTED)),
    case("gpu.initialization", "fail", "cannot start a GPU", with_events(NONE_STARTED, gpus=())),
    case("gpu.initialization", "skip", "kernel log was not read", HEALTHY),
    # --- Xids
    case("gpu.xid", "pass", "holds no Xid", COMPLETE),
    case(
        "gpu.xid", "fail", "Xid 79: The GPU has fallen off the bus", with_events(xid(79, "GPU has fallen off the bus."))
    ),
    case(
        "gpu.xid",
        "fail",
        "Xid 48: An uncorrectable error",
        with_events(DOUBLE_BIT, gpus=(v100(0), v100(1, ecc_uncorrected_volatile=1))),
    ),
    case("gpu.xid", "warn", "Xid 48: An uncorrectable error", with_events(DOUBLE_BIT)),
    case("gpu.xid", "fail", "Xid 48: An uncorrectable error", replace(with_events(DOUBLE_BIT), collected_at=None)),
    case("gpu.xid", "fail", "Xid 48", with_events(DOUBLE_BIT, gpus=(v100(0), v100(1, retired_pages_pending=True)))),
    case("gpu.xid", "info", "Xid 31: A program accessed", with_events(xid(31, "pid=1, MMU Fault"))),
    case(
        "gpu.xid",
        "warn",
        "page was recorded",
        with_events(RETIRED, gpus=(v100(0), v100(1, retired_pages_pending=True))),
    ),
    case("gpu.xid", "info", "page was recorded", with_events(RETIRED)),
    case(
        "gpu.xid",
        "warn",
        "row was recorded",
        with_events(REMAPPED, gpus=(a100(0), a100(1, remapped_rows_pending=True))),
    ),
    # Volta has no GSP: what the number means there nobody has written down.
    case("gpu.xid", "info", "does not know what it means on Volta", with_events(xid(119, "Timeout waiting for RPC"))),
    case("gpu.xid", "fail", "Xid 119", with_events(NO_RPC, gpus=(a100(0), a100(1, temperature_celsius=None)))),
    case("gpu.xid", "warn", "(GSP) does not answer (in the past)", with_events(NO_RPC, gpus=(a100(0), a100(1)))),
    case("gpu.xid", "info", "Xid 999: onecat does not know", with_events(xid(999, "something new"))),
    case("gpu.xid", "info", "without a number", with_events(KernelEvent("xid", "NVRM: Xid (PCI:0000:af:00): "))),
    case(
        "gpu.xid",
        "fail",
        "asks for a reboot",
        with_events(xid(154, "changed from 0x0 (None) to 0x2 (Node Reboot Required)")),
    ),
    case(
        "gpu.xid",
        "info",
        "changed what it asks for",
        with_events(xid(154, "changed from 0x1 (GPU Reset Required) to 0x0 (None)")),
    ),
    case("gpu.xid", "skip", "kernel log was not read", HEALTHY),
    case("gpu.gsp", "pass", "tells of no GSP", COMPLETE),
    case("gpu.gsp", "fail", "did not answer the driver", with_events(NO_ANSWER, gpus=(a100(0, error="GPU is lost"),))),
    case("gpu.gsp", "warn", "did not answer the driver (in the past)", with_events(NO_ANSWER, gpus=(a100(0),))),
    case("gpu.gsp", "skip", "kernel log was not read", HEALTHY),
    # --- code inside images
    both("gpu.arch-in-image", ("pass", "0.27.1-sm70 holds code for"), ("pass", "7.0"), HEALTHY),
    case("gpu.arch-in-image", "pass", "holds code", labelled("7.0 7.5+PTX")),
    case("gpu.arch-in-image", "fail", "0.27.1-sm70 holds no code", labelled("7.5;8.0;9.0")),
    case("gpu.arch-in-image", "fail", "holds no code for compute capability 7.0", one_gpu(), stock("v0.27.1")),
    case("gpu.arch-in-image", "fail", "holds no code for compute capability 7.0", one_gpu(), stock("v0.9.1")),
    case("gpu.arch-in-image", "pass", "holds code for compute capability 7.0", one_gpu(), stock("v0.11.0")),
    case("gpu.arch-in-image", "skip", "not known what", one_gpu(), stock("v0.10.0")),
    case("gpu.arch-in-image", "skip", "not known what", one_gpu(), stock("latest")),
    case("gpu.arch-in-image", "skip", "not known what", one_gpu(h200(0)), stock("v0.27.1")),
    case("gpu.arch-in-image", "pass", "capability 8.6", one_gpu(a100(0, compute_capability="8.6")), stock("v0.21.0")),
    case("gpu.arch-in-image", "pass", "capability 12.1", one_gpu(a100(0, compute_capability="12.1")), stock("v0.21.0")),
    case("gpu.arch-in-image", "fail", "host holds no code", torch("2.13.0+cu130", "13.0"), None),
    case("gpu.arch-in-image", "pass", "host holds code", torch("2.10.0+cu128", "12.8"), None),
    case("gpu.arch-in-image", "skip", "not known what host holds", torch("2.10.0a0+gitabc", "12.8"), None),
    case(
        "gpu.arch-in-image",
        "fail",
        "host holds no code",
        torch("2.13.0", "13.0", ("sm_75", "sm_80", "compute_80")),
        None,
    ),
    case("gpu.arch-in-image", "pass", "host holds code", torch("2.6.0", "12.4", ("sm_60", "compute_70")), None),
    case("gpu.arch-in-image", "skip", "no image and no PyTorch", HEALTHY, None),
    # --- memory
    both(
        "gpu.memory-held",
        ("pass", "0 GiB"),
        ("warn", "8 GiB of 32 GiB"),
        with_gpus(*two(memory_used=8 * GIB, processes=(GpuProcess(4711, "python3", 8 * GIB),))),
    ),
    both(
        "gpu.stuck-process",
        ("pass", "0 programs"),
        ("pass", "1 program, none"),
        replace(with_gpus(*two(processes=(GpuProcess(7),))), is_root=True),
    ),
    both(
        "gpu.stuck-process",
        ("pass", "0 programs"),
        ("skip", "only root may see: --sudo"),
        replace(with_gpus(*two(processes=(GpuProcess(7),))), is_root=False),
    ),
    both(
        "gpu.stuck-process",
        ("pass", "none stuck"),
        ("warn", "7 (VLLM::EngineCore) does not leave the kernel's uvm_spin_loop"),
        with_gpus(*two(processes=(GpuProcess(7, "VLLM::EngineCore", stuck_in="uvm_spin_loop"),))),
    ),
    both("gpu.stuck-process", ("pass", "none stuck"), ("skip", "not known"), with_gpus(*two(processes=None))),
    case("gpu.bar1", "pass", "256 GiB", with_gpus(h200(0))),
    case(
        "gpu.bar1",
        "info",
        "BAR1 is 256 MiB where this card can open 262144 MiB",
        with_gpus(h200(0, bar1_total=256 << 20)),
    ),
    case("gpu.bar1", "skip", "the size is not known", with_gpus(h200(0, bar1_total=None))),
    case("gpu.bar1", "skip", "the usual size of Tesla V100-PCIE-32GB", with_gpus(v100(0))),
    # --- ECC
    both(
        "gpu.ecc-mode",
        ("pass", "ECC is on"),
        ("info", "ECC is off"),
        with_gpus(*two(ecc_enabled=False, ecc_enabled_pending=False)),
    ),
    both("gpu.ecc-mode", ("pass", ""), ("info", "switched on at the next start"), with_gpus(*two(ecc_enabled=False))),
    both("gpu.ecc-mode", ("pass", ""), ("skip", "has no ECC"), with_gpus(*two(ecc_enabled=None))),
    both(
        "gpu.ecc-corrected",
        ("pass", ""),
        ("info", "12 corrected memory errors"),
        with_gpus(*two(ecc_corrected_volatile=12)),
    ),
    both("gpu.ecc-corrected", ("pass", ""), ("skip", "not known"), with_gpus(*two(ecc_corrected_volatile=None))),
    both("gpu.ecc-errors", ("pass", ""), ("skip", "since the driver"), with_gpus(*two(ecc_uncorrected_volatile=None))),
    both(
        "gpu.retired-pages", ("pass", ""), ("skip", "whether pages wait"), with_gpus(*two(retired_pages_pending=None))
    ),
    case("gpu.row-remapping", "skip", "cut off", with_gpus(a100(0, remapped_rows_pending=None))),
    # --- clocks, heat, power
    both(
        "gpu.application-clocks",
        ("pass", ""),
        ("warn", "the graphics clock, 877 of 1230 MHz"),
        with_gpus(*two(graphics_clock_application_mhz=877)),
    ),
    both(
        "gpu.application-clocks",
        ("pass", ""),
        ("skip", "has no application clocks"),
        with_gpus(*two(graphics_clock_application_mhz=None, memory_clock_application_mhz=None)),
    ),
    both(
        "gpu.slowdown",
        ("pass", "Nothing slows it down"),
        ("fail", "power brake"),
        with_nvidia(gpus=(v100(0),), loads=(LoadMeasurement(0, event_reasons=0x80),)),
    ),
    both("gpu.temperature", ("pass", "34 °C"), ("warn", "84 °C: 3 °C below"), with_gpus(*two(temperature_celsius=84))),
    both("gpu.temperature", ("pass", "34 °C"), ("fail", "slows itself down"), with_gpus(*two(temperature_celsius=87))),
    both("gpu.temperature", ("pass", ""), ("skip", "slowdown"), with_gpus(*two(temperature_slowdown_celsius=None))),
    both(
        "gpu.power-limit",
        ("pass", "250 W"),
        ("info", "is 150 W, the default 250 W"),
        with_gpus(*two(power_limit_watts=150.0)),
    ),
    both("gpu.power-limit", ("pass", ""), ("skip", "not known"), with_gpus(*two(power_limit_default_watts=None))),
    # --- modes
    both("gpu.persistence", ("pass", "is on"), ("warn", "Persistence is off"), with_gpus(*two(persistence_mode=False))),
    both("gpu.persistence", ("pass", ""), ("skip", "not known"), with_gpus(*two(persistence_mode=None))),
    both(
        "gpu.compute-mode", ("pass", "default"), ("fail", "are prohibited"), with_gpus(*two(compute_mode="prohibited"))
    ),
    both("gpu.compute-mode", ("pass", ""), ("warn", "One program"), with_gpus(*two(compute_mode="Exclusive_Process"))),
    both("gpu.compute-mode", ("pass", ""), ("skip", "not known"), with_gpus(*two(compute_mode=None))),
    case("gpu.mig", "pass", "MIG is off", with_gpus(h200(0))),
    case("gpu.mig", "fail", "without an instance", with_gpus(h200(0, mig_enabled=True, mig_devices=0))),
    case("gpu.mig", "warn", "counts on a whole GPU", with_gpus(h200(0, mig_enabled=True, mig_devices=3)), H200),
    case("gpu.mig", "info", "CUDA sees instances", with_gpus(h200(0, mig_enabled=True, mig_devices=3)), None),
    case("gpu.mig", "skip", "Volta GPUs cannot be split", with_gpus(v100(0))),
]
