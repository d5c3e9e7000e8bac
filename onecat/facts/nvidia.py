"""NVIDIA driver and GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.facts.pci import PciDevice


@dataclass(frozen=True)
class GpuProcess:
    """A program that uses a GPU. memory: of that GPU. stuck_in: the kernel function it cannot leave."""

    pid: int
    name: str | None = None
    memory: int | None = None
    stuck_in: str | None = None


@dataclass(frozen=True)
class NvLink:
    """One NVLink of a GPU. replay_errors, crc_errors: totals since the driver was loaded."""

    link: int
    active: bool | None = None
    gigabytes_per_second: float | None = None
    replay_errors: int | None = None
    crc_errors: int | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML reports it. `error` is set when the driver lists it and it does not answer.

    process_ids, processes: None when not known, empty when none uses it.
    numa_node: as `nvidia-smi topo -m` tells it; what the kernel says is PciDevice.numa_node.
    event_reasons: NVML's bits why the clocks are low. *_clock_application: what was set for applications.
    temperature_slowdown_celsius: where the card begins to slow itself.
    virtualization_mode: nvidia-smi's words in lower case: "none", "pass-through", "vgpu", "host vgpu", "host vsga".
    fabric_state: of NVSwitch systems: "not started", "in progress", "completed"; None without a fabric.
    fabric_status: "success" or, in lower case, NVML's error; only of a completed state.
    nvlinks: None for a GPU that has none. processes: of every kind, computing and drawing.
    """

    index: int
    name: str
    error: str | None = None
    uuid: str | None = None
    pci_address: str | None = None
    compute_capability: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    bar1_total: int | None = None
    bar1_used: int | None = None
    performance_state: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    temperature_memory_celsius: int | None = None
    temperature_slowdown_celsius: int | None = None
    power_draw_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    virtualization_mode: str | None = None
    mig_enabled: bool | None = None
    mig_devices: int | None = None
    gsp_firmware_version: str | None = None
    ecc_enabled: bool | None = None
    ecc_enabled_pending: bool | None = None
    ecc_corrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    retired_pages: int | None = None
    retired_pages_pending: bool | None = None
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    remapped_rows_failure: bool | None = None
    remapped_rows_pending: bool | None = None
    pcie_generation_current: int | None = None
    pcie_generation_max: int | None = None
    pcie_width_current: int | None = None
    pcie_width_max: int | None = None
    pcie_replay_counter: int | None = None
    graphics_clock_mhz: int | None = None
    graphics_clock_max_mhz: int | None = None
    graphics_clock_application_mhz: int | None = None
    graphics_clock_application_default_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    memory_clock_application_mhz: int | None = None
    event_reasons: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    numa_node: int | None = None
    process_ids: tuple[int, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True)
class GpuPair:
    """What lies between two GPUs, first < second.

    connection: in nvidia-smi's words: NV4 (four NVLinks), PIX, PXB, PHB, NODE, SYS.
    peer_read, peer_write: "ok" or why one cannot reach the other's memory: "chipset not supported",
    "GPU not supported", "topology not supported", "disabled by regkey", "not supported", "unknown" (nvidia-smi topo
    -p2p prints them as OK, CNS, GNS, TNS, DR, NS and U).
    """

    first: int
    second: int
    connection: str | None = None
    peer_read: str | None = None
    peer_write: str | None = None


@dataclass(frozen=True)
class FabricManager:
    """The service that sets up NVSwitches. running: None when not known."""

    version: str | None = None
    running: bool | None = None


@dataclass(frozen=True)
class LoadMeasurement:
    """What one GPU's link does under load: copies of pinned host memory to the GPU.

    seconds: how long it was kept busy. link_*: the highest seen meanwhile. gpu is the index that NVML uses.
    skipped: why it was not measured. error: what failed.
    """

    gpu: int
    gigabytes_per_second: float | None = None
    seconds: float | None = None
    link_generation: int | None = None
    link_width: int | None = None
    replays: int | None = None
    event_reasons: int | None = None
    skipped: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Nvidia:
    """NVIDIA driver and GPUs. `nvml_error` is set when the library is there and refuses to work.

    library_version: of the user-space NVML library by its file name, known also when NVML refuses to work;
    cuda_library_version: of libcuda likewise; kernel_module_version: of the module in the kernel.
    kernel_module_file_version: of the module on disk, which the next boot loads.
    device_files: of /dev/nvidia*. dev_char_links: whether /dev/char links to them; None without device files.
    compat_libraries: libcuda of CUDA compatibility packages that the host's loader may find before the driver's.
    toolkits: (path, version) of CUDA toolkits on the host. nvswitches: how many there are.
    """

    driver_version: str | None = None
    library_version: str | None = None
    cuda_library_version: str | None = None
    kernel_module_version: str | None = None
    kernel_module_open: bool | None = None
    kernel_module_file_version: str | None = None
    cuda_driver_version: str | None = None
    nouveau_loaded: bool | None = None
    library_found: bool | None = None
    nvml_error: str | None = None
    device_files: tuple[str, ...] | None = None
    dev_char_links: bool | None = None
    persistence_daemon: bool | None = None
    compat_libraries: tuple[str, ...] = ()
    toolkits: tuple[tuple[str, str], ...] = ()
    fabric_manager: FabricManager | None = None
    nvswitches: int | None = None
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    loads: tuple[LoadMeasurement, ...] = ()
    pci_devices: tuple[PciDevice, ...] = ()
