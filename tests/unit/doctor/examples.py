"""A healthy host with two V100 as facts, and profiles, for tests to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.config import Profile, load_profile
from onecat.facts import (
    Cpu,
    Docker,
    Facts,
    Filesystem,
    Gpu,
    GpuPair,
    KernelEvent,
    Listener,
    Memory,
    Note,
    Nvidia,
    NvLink,
    OperatingSystem,
    PciBus,
    PciDevice,
    PciPort,
    SeLinux,
    Tools,
)

GIB = 1 << 30


def v100(index: int, **changes: Any) -> Gpu:
    healthy = Gpu(
        index=index,
        name="Tesla V100-PCIE-32GB",
        uuid=f"GPU-0000000{index}",
        pci_address=("0000:3b:00.0", "0000:af:00.0")[index],
        compute_capability="7.0",
        memory_total=32 * GIB,
        memory_used=0,
        performance_state=0,
        utilization_percent=0,
        temperature_celsius=34,
        temperature_slowdown_celsius=87,
        power_limit_watts=250.0,
        power_limit_default_watts=250.0,
        persistence_mode=True,
        compute_mode="default",
        bar1_total=32 * GIB,
        ecc_enabled=True,
        ecc_enabled_pending=True,
        ecc_corrected_volatile=0,
        ecc_corrected_aggregate=0,
        ecc_uncorrected_volatile=0,
        ecc_uncorrected_aggregate=0,
        retired_pages=0,
        retired_pages_pending=False,
        pcie_generation_current=1,
        pcie_generation_max=3,
        pcie_width_current=16,
        pcie_width_max=16,
        pcie_replay_counter=0,
        memory_clock_mhz=877,
        memory_clock_max_mhz=877,
        memory_clock_application_mhz=877,
        graphics_clock_mhz=135,
        graphics_clock_max_mhz=1380,
        graphics_clock_application_mhz=1230,
        graphics_clock_application_default_mhz=1230,
        event_reasons=1,
        process_ids=(),
        processes=(),
    )
    return replace(healthy, **changes)


def a100(index: int, **changes: Any) -> Gpu:
    """A GPU that remaps rows and does not retire pages."""
    ampere: dict[str, Any] = {
        "name": "NVIDIA A100 80GB PCIe",
        "compute_capability": "8.0",
        "memory_total": 80 * GIB,
        "retired_pages": None,
        "retired_pages_pending": None,
        "remapped_rows_failure": False,
        "remapped_rows_pending": False,
    }
    return v100(index, **{**ampere, **changes})


def h200(index: int, **changes: Any) -> Gpu:
    """A GPU of a board with NVLink and NVSwitches."""
    hopper: dict[str, Any] = {
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "memory_total": 141 * GIB,
        "memory_clock_max_mhz": 3201,
        "memory_clock_application_mhz": 3201,
        "bar1_total": 256 * GIB,
        "mig_enabled": False,
        "fabric_state": "completed",
        "fabric_status": "success",
        "nvlinks": tuple(NvLink(link, True, 26.6, 0, 0) for link in range(18)),
    }
    return a100(index, **{**hopper, **changes})


def device(index: int, **changes: Any) -> PciDevice:
    healthy = PciDevice(
        address=("0000:3b:00.0", "0000:af:00.0")[index],
        vendor_id="10de",
        device_id="1db6",
        driver="nvidia",
        link_width_current=16,
        link_width_max=16,
        link_speed_current="2.5 GT/s PCIe",
        link_speed_max="8.0 GT/s PCIe",
        path=(
            PciPort(
                ("0000:3a:00.0", "0000:ae:00.0")[index],
                link_width_current=16,
                link_width_max=16,
                link_speed_current="2.5 GT/s PCIe",
                link_speed_max="8.0 GT/s PCIe",
                acs=(),
            ),
        ),
        numa_node=index,
        aspm="disabled",
        errors_correctable=0,
        errors_nonfatal=0,
        errors_fatal=0,
        responds=True,
    )
    return replace(healthy, **changes)


NVIDIA = Nvidia(
    driver_version="580.95.05",
    library_version="580.95.05",
    cuda_library_version="580.95.05",
    kernel_module_version="580.95.05",
    kernel_module_file_version="580.95.05",
    kernel_module_open=False,
    cuda_driver_version="13.0",
    nouveau_loaded=False,
    library_found=True,
    persistence_daemon=True,
    nvswitches=0,
    gpus=(v100(0), v100(1)),
    pairs=(GpuPair(0, 1, "SYS", "ok", "ok"),),
    pci_devices=(device(0), device(1)),
)
DOCKER = Docker(
    state="reachable",
    socket="unix:///var/run/docker.sock",
    server_version="28.5.1",
    api_version="1.51",
    storage_driver="overlay2",
    root_directory="/var/lib/docker",
    security_options=("name=seccomp,profile=builtin",),
)
HEALTHY = Facts(
    host="gpu1",
    collected_at="2026-11-29T12:00:00Z",
    user="operator",
    is_root=False,
    operating_system=OperatingSystem(
        id="ubuntu", version_id="22.04", kernel="5.15.0", architecture="x86_64", libc="glibc 2.35", container=False
    ),
    cpu=Cpu(model="Intel(R) Xeon(R) Gold 6130", logical_cores=32, usable_cores=32, flags=("avx", "avx2", "fma")),
    memory=Memory(total=192 * GIB, available=180 * GIB, swap_total=0),
    filesystems=(
        Filesystem("data", "/home/operator/.local/share/onecat", 900 * GIB, 500 * GIB, 50_000_000, "ext4"),
        Filesystem("docker", "/var/lib/docker", 900 * GIB, 500 * GIB, 50_000_000, "ext4"),
        Filesystem("tmp", "/tmp", 900 * GIB, 500 * GIB, 50_000_000, "ext4"),
        Filesystem("shm", "/dev/shm", 96 * GIB, 96 * GIB, 24_000_000, "tmpfs"),
    ),
    selinux=SeLinux("disabled"),
    docker=DOCKER,
    nvidia=NVIDIA,
    listeners=(Listener("0.0.0.0", 22),),
    tools=Tools(paths=(("nginx", "/usr/sbin/nginx"),), libraries=("libnuma.so.1",), versions=(("nginx", "1.18.0"),)),
)
COMPLETE = replace(
    HEALTHY,
    operating_system=OperatingSystem(
        id="ubuntu",
        version_id="22.04",
        kernel="5.15.0",
        kernel_command_line="BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro quiet",
        architecture="x86_64",
        libc="glibc 2.35",
        container=False,
        virtualization="none",
        secure_boot=False,
    ),
    pci=PciBus(aspm_policy="default", iommu_groups=0),
    kernel_events=(),
)
"""The healthy host as root sees it."""
NOTHING_KNOWN = Facts(host="gpu1")
WITHOUT_GPU = replace(
    HEALTHY,
    nvidia=Nvidia(nouveau_loaded=False, library_found=False),
    notes=(Note("nvml", "absent", "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"),),
)

NO_NVML = replace(WITHOUT_GPU, nvidia=replace(NVIDIA, gpus=(), pairs=(), driver_version=None, library_found=False))
HUNG = replace(
    HEALTHY,
    nvidia=replace(NVIDIA, gpus=(v100(0),)),
    notes=(Note("nvml", "timeout", "no answer within 10 s while in nvmlDeviceGetName of GPU 1"),),
)

V100 = load_profile("v100x2-pcie")
CPU = load_profile("cpu")
A100 = load_profile("a100x2-80g")
H200 = load_profile("h200")


def two(**changes: Any) -> tuple[Gpu, Gpu]:
    """Two GPUs; what is changed is changed on the second."""
    return v100(0), v100(1, **changes)


def with_nvidia(**changes: Any) -> Facts:
    return replace(HEALTHY, nvidia=replace(NVIDIA, **changes))


def with_gpus(*gpus: Gpu) -> Facts:
    """Without the sysfs side, so that NVML is the only witness."""
    return with_nvidia(gpus=gpus, pci_devices=())


def with_docker(**changes: Any) -> Facts:
    return replace(HEALTHY, docker=replace(DOCKER, **changes))


def with_filesystem(purpose: str, **changes: Any) -> Facts:
    changed = tuple(replace(each, **changes) if each.purpose == purpose else each for each in HEALTHY.filesystems)
    return replace(HEALTHY, filesystems=changed)


def with_hardware(profile: Profile, **changes: Any) -> Profile:
    return profile.model_copy(update={"hardware": profile.hardware.model_copy(update=changes)})


def with_events(*events: KernelEvent, **changes: Any) -> Facts:
    """The complete host with something in its kernel log."""
    return replace(COMPLETE, kernel_events=events, nvidia=replace(NVIDIA, **changes))


def with_system(facts: Facts, **changes: Any) -> Facts:
    assert facts.operating_system is not None
    return replace(facts, operating_system=replace(facts.operating_system, **changes))
