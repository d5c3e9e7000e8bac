"""Every check: what makes it speak up, what makes it pass, what makes it skip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from onecat.config import Profile
from onecat.doctor import Finding, Settings, Status, all_checks, examine
from onecat.facts import Docker, Facts, Gpu, Listener, Memory, Note, Nvidia, PciPort, SeLinux, Tools
from tests.unit.doctor.examples import (
    CPU,
    GIB,
    HEALTHY,
    NOTHING_KNOWN,
    NVIDIA,
    V100,
    WITHOUT_GPU,
    a100,
    device,
    v100,
    with_docker,
    with_filesystem,
    with_gpus,
    with_hardware,
    with_nvidia,
)

DEFAULTS = Settings()


@dataclass(frozen=True)
class Case:
    """A check's answers on some facts: the status and a part of the title of each of its findings."""

    check: str
    expected: tuple[tuple[Status, str], ...]
    facts: Facts
    profile: Profile | None = V100
    settings: Settings = DEFAULTS


def case(
    check: str,
    status: Status,
    title: str,
    facts: Facts,
    profile: Profile | None = V100,
    settings: Settings = DEFAULTS,
) -> Case:
    return Case(check, ((status, title),), facts, profile, settings)


def both(check: str, first: tuple[Status, str], second: tuple[Status, str], facts: Facts) -> Case:
    return Case(check, (first, second), facts)


def libc(text: str | None) -> Facts:
    assert HEALTHY.operating_system is not None
    return replace(HEALTHY, operating_system=replace(HEALTHY.operating_system, libc=text))


def architecture(text: str) -> Facts:
    assert HEALTHY.operating_system is not None
    return replace(HEALTHY, operating_system=replace(HEALTHY.operating_system, architecture=text))


def two(**changes: object) -> tuple[Gpu, Gpu]:
    """Two GPUs; what is changed is changed on the second."""
    return v100(0), v100(1, **changes)


NO_NVML = replace(WITHOUT_GPU, nvidia=replace(NVIDIA, gpus=(), driver_version=None, library_found=False))
HUNG = replace(
    HEALTHY,
    nvidia=replace(NVIDIA, gpus=(v100(0),)),
    notes=(Note("nvml", "timeout", "no answer within 10 s while in nvmlDeviceGetName of GPU 1"),),
)
NATIVE = Settings(runtime="native")

CASES = [
    # --- operating system, processor, memory
    case("os.architecture", "pass", "x86_64 is supported", HEALTHY),
    case("os.architecture", "pass", "aarch64 is supported", architecture("aarch64")),
    case("os.architecture", "fail", "No engine is built for riscv64", architecture("riscv64")),
    case("os.architecture", "skip", "not known", NOTHING_KNOWN),
    case("os.c-library", "pass", "glibc 2.35 is new enough", HEALTHY, CPU),
    case("os.c-library", "fail", "needs glibc 2.31, this system has glibc 2.28", libc("glibc 2.28"), CPU),
    case("os.c-library", "fail", "this system has musl 1.2.5", libc("musl 1.2.5"), CPU),
    case("os.c-library", "skip", "not known", libc(None), CPU),
    case("os.c-library", "skip", "runs in a container", HEALTHY, V100),
    case("os.libraries", "pass", "libnuma.so.1 found", HEALTHY, CPU),
    case("os.libraries", "fail", "libnuma.so.1 is missing", replace(HEALTHY, tools=Tools(libraries=())), CPU),
    case("os.libraries", "skip", "the loader was not asked", replace(HEALTHY, tools=Tools()), CPU),
    case("cpu.instruction-sets", "pass", "has avx2", HEALTHY, CPU),
    case(
        "cpu.instruction-sets",
        "fail",
        "lacks avx2",
        replace(HEALTHY, cpu=replace(HEALTHY.cpu, flags=("avx", "fma"))),  # type: ignore[type-var]
        CPU,
    ),
    case("cpu.instruction-sets", "skip", "flags are not known", NOTHING_KNOWN, CPU),
    case("cpu.instruction-sets", "skip", "needs none", HEALTHY, V100),
    case("memory.total", "pass", "192 GiB", HEALTHY),
    case("memory.total", "pass", "31 GiB", replace(HEALTHY, memory=Memory(total=31 * GIB))),
    case("memory.total", "fail", "16 GiB of memory, 32 GiB", replace(HEALTHY, memory=Memory(total=16 * GIB))),
    case(
        "memory.total",
        "fail",
        "control group limits memory to 8 GiB",
        replace(HEALTHY, memory=Memory(total=192 * GIB, cgroup_limit=8 * GIB)),
    ),
    case("memory.total", "skip", "not known", NOTHING_KNOWN),
    # --- storage
    case("disk.space", "pass", "500 GiB free", HEALTHY),
    case("disk.space", "warn", "20 GiB free", with_filesystem("docker", available=20 * GIB)),
    case("disk.space", "fail", "0.5 GiB free", with_filesystem("docker", available=GIB // 2)),
    case("disk.space", "pass", "500 GiB", with_filesystem("docker", available=0), CPU, NATIVE),
    case("disk.space", "skip", "not known", NOTHING_KNOWN),
    case("disk.inodes", "pass", "Inodes free", HEALTHY),
    case("disk.inodes", "warn", "Only 100 files", with_filesystem("docker", inodes_available=100)),
    case("disk.inodes", "skip", "not known", with_filesystem("docker", inodes_available=None)),
    case("shm.size", "pass", "96 GiB free", HEALTHY, CPU),
    case("shm.size", "fail", "/dev/shm has 64 MiB", with_filesystem("shm", total=64 << 20, available=64 << 20), CPU),
    case("shm.size", "fail", "/dev/shm has 16 MiB free", with_filesystem("shm", available=16 << 20), CPU),
    case("shm.size", "skip", "not found", NOTHING_KNOWN, CPU),
    case("shm.size", "skip", "in a container", HEALTHY, V100),
    # --- Docker
    case("docker.daemon", "pass", "Docker 28.5.1 answers", HEALTHY),
    case("docker.daemon", "pass", "Docker 28.5.1 answers", with_docker(api_version="1.41")),
    case("docker.daemon", "warn", "too old for onecat's containers: API 1.40", with_docker(api_version="1.40")),
    case("docker.daemon", "fail", "is not installed", with_docker(state="absent")),
    case("docker.daemon", "fail", "No Docker daemon answers", with_docker(state="unreachable")),
    case("docker.daemon", "fail", "refuses the user operator", with_docker(state="forbidden")),
    case("docker.daemon", "info", "servers can run natively only", with_docker(state="absent"), CPU),
    case("docker.daemon", "info", "no containers", with_docker(state="absent"), None),
    case("docker.daemon", "fail", "is not installed", with_docker(state="absent"), CPU, Settings(runtime="container")),
    case("docker.daemon", "skip", "runs natively", with_docker(state="absent"), CPU, NATIVE),
    case("docker.daemon", "skip", "no Docker facts", NOTHING_KNOWN),
    case(
        "docker.daemon",
        "fail",
        "does not answer",
        replace(HEALTHY, docker=None, notes=(Note("docker", "timeout", "no answer within 10 s"),)),
    ),
    case("selinux.mode", "pass", "disabled", HEALTHY),
    case("selinux.mode", "pass", "permissive", replace(HEALTHY, selinux=SeLinux("permissive"))),
    case("selinux.mode", "pass", "does not confine", replace(HEALTHY, selinux=SeLinux("enforcing"))),
    case(
        "selinux.mode",
        "info",
        "confines containers on this host, but for those of onecat",
        replace(with_docker(security_options=("name=seccomp", "name=selinux")), selinux=SeLinux("enforcing")),
    ),
    case("selinux.mode", "skip", "not known", NOTHING_KNOWN),
    # --- driver
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
    # --- GPUs
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
    both("gpu.compute-capability", ("pass", ""), ("skip", "not known"), with_gpus(*two(compute_capability=None))),
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
    case("gpu.retired-pages", "skip", "Ampere and newer", with_gpus(a100(0))),
    case("gpu.row-remapping", "pass", "No row remapping", with_gpus(a100(0))),
    case("gpu.row-remapping", "fail", "could not be remapped", with_gpus(a100(0, remapped_rows_failure=True))),
    case("gpu.row-remapping", "warn", "waits to be remapped", with_gpus(a100(0, remapped_rows_pending=True))),
    case("gpu.row-remapping", "skip", "before Ampere", with_gpus(v100(0))),
    both("gpu.slowdown", ("pass", ""), ("fail", "by heat (hardware)"), with_gpus(*two(event_reasons=0x48))),
    both("gpu.slowdown", ("pass", ""), ("fail", "power brake"), with_gpus(*two(event_reasons=0x80))),
    both("gpu.slowdown", ("pass", ""), ("warn", "by heat (software)"), with_gpus(*two(event_reasons=0x20))),
    both("gpu.slowdown", ("pass", ""), ("skip", "not known"), with_gpus(*two(event_reasons=None))),
    case("gpu.memory-clock", "pass", "877 MHz", with_gpus(v100(0, memory_clock_mhz=405))),
    case("gpu.memory-clock", "info", "goes to 810 MHz", with_gpus(v100(0, memory_clock_max_mhz=810))),
    case("gpu.memory-clock", "skip", "not known", with_gpus(a100(0))),
    # --- PCIe
    both("pcie.link-width", ("pass", "x16"), ("warn", "x4 of x16"), with_gpus(*two(pcie_width_current=4))),
    both(
        "pcie.link-width",
        ("pass", "x16"),
        ("warn", "sits in a slot with x8"),
        with_nvidia(
            gpus=two(pcie_width_current=8, pcie_width_max=8),
            pci_devices=(device(0), device(1, link_width_current=8, path=(PciPort("0000:ae:00.0", link_width_max=8),))),
        ),
    ),
    case(
        "pcie.link-width",
        "warn",
        "x1 of x16",
        replace(WITHOUT_GPU, nvidia=Nvidia(pci_devices=(device(0, driver=None, link_width_current=1),))),
    ),
    both("pcie.link-width", ("pass", ""), ("skip", "not known"), with_gpus(*two(pcie_width_current=None))),
    both(
        "pcie.replays", ("pass", "No PCIe replays"), ("info", "7 PCIe replays"), with_gpus(*two(pcie_replay_counter=7))
    ),
    both("pcie.replays", ("pass", ""), ("skip", "not known"), with_gpus(*two(pcie_replay_counter=None))),
    # --- serving
    case("serving.port", "pass", "Port 8000 is free", HEALTHY),
    case("serving.port", "warn", "Port 22, for the server, is in use", HEALTHY, V100, Settings(port=22)),
    case("serving.port", "skip", "not known", NOTHING_KNOWN),
    case("serving.proxy-port", "pass", "Port 8080 is free", HEALTHY),
    case("serving.proxy-port", "warn", "in use", replace(HEALTHY, listeners=(Listener("::", 8080),))),
    case("serving.proxy-port", "skip", "has no proxy", HEALTHY, V100, Settings(proxy_port=None)),
    case("serving.nginx", "pass", "nginx 1.18.0", HEALTHY),
    case("serving.nginx", "info", "nginx is not installed", replace(HEALTHY, tools=Tools())),
    case("serving.nginx", "skip", "not known", NOTHING_KNOWN),
    # --- the probe itself
    case("probe.sources", "pass", "Every source", WITHOUT_GPU),
    case("probe.sources", "info", "The source nvml", HUNG),
    case("probe.sources", "skip", "not collected by the probe", NOTHING_KNOWN),
]


def answers(findings: Iterable[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.check}-{each.expected[-1][0]}-{each.expected[-1][1]}")
def test_a_check_says_what_the_facts_say(case: Case) -> None:
    found = answers(examine(case.facts, case.profile, case.settings), case.check)
    assert [finding.status for finding in found] == [status for status, _ in case.expected]
    for finding, (_, title) in zip(found, case.expected, strict=True):
        assert title in finding.title


@pytest.mark.parametrize("check", all_checks(), ids=lambda each: each.id)
def test_every_check_is_seen_to_speak_up_to_pass_and_to_skip(check: object) -> None:
    statuses = {status for case in CASES if case.check == check.id for status, _ in case.expected}  # type: ignore[attr-defined]
    assert statuses & {"fail", "warn", "info"}
    assert {"pass", "skip"} <= statuses


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.check}-{each.expected[-1][1]}")
def test_what_speaks_up_has_a_reason_and_a_source_and_failures_have_evidence_and_a_fix(case: Case) -> None:
    for finding in answers(examine(case.facts, case.profile, case.settings), case.check):
        assert finding.why and finding.source
        if finding.status in ("fail", "warn"):
            assert finding.evidence and finding.fix
            assert "setenforce" not in " ".join(finding.fix)


def test_unknown_facts_never_pass_or_fail() -> None:
    for profile in (None, V100, CPU):
        assert {finding.status for finding in examine(NOTHING_KNOWN, profile)} == {"skip"}


def test_a_healthy_host_has_nothing_to_say() -> None:
    findings = examine(HEALTHY, V100)
    assert {finding.status for finding in findings} == {"pass", "skip"}


def test_a_docker_state_has_the_fix_for_this_system() -> None:
    absent = Docker(state="absent", socket="unix:///var/run/docker.sock", error="does not exist")
    (finding,) = answers(examine(replace(HEALTHY, docker=absent), V100), "docker.daemon")
    assert finding.fix == ("sudo apt-get install docker.io",)
