"""GPUs as NVML reports them, through the pynvml that travels with the agent."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import re

from onecat.probe.agent.core import Unknown, read_file_or_none


def nvml(machine, emit):
    import ctypes

    emit(doing="loading libnvidia-ml.so.1")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        missing = "cannot open shared object file" in str(error)
        emit(nvidia={"library_found": not missing})
        raise Unknown("absent" if missing else "error", str(error)) from None
    emit(nvidia={"library_found": True, "library_version": loaded_library_version()})
    import pynvml as bindings

    emit(doing="in nvmlInit")
    try:
        bindings.nvmlInit()
    except bindings.NVMLError as error:
        emit(nvidia={"nvml_error": error_text(bindings, error)})
        return
    ask = Asker(bindings, emit)
    cuda = ask("nvmlSystemGetCudaDriverVersion_v2") or ask("nvmlSystemGetCudaDriverVersion")
    emit(
        nvidia={
            "driver_version": ask("nvmlSystemGetDriverVersion"),
            "cuda_driver_version": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        }
    )
    for index in range(ask("nvmlDeviceGetCount") or 0):
        ask.subject, ask.lost = f" of GPU {index}", None
        emit(nvidia={"gpus": [gpu(bindings, ask, index)]})


def loaded_library_version():
    """The version in the file name of the loaded NVML library (libnvidia-ml.so.580.95.05)."""
    match = re.search(r"libnvidia-ml\.so\.(\d+\.\d+[\d.]*)", read_file_or_none("/proc/self/maps") or "")
    return match.group(1) if match else None


def error_text(bindings, error):
    """An NVML error in the library's words, which nvidia-smi uses too; pynvml has words of its own for some."""
    try:
        text = bindings.nvmlErrorString(error.value)
    except Exception:
        return str(error)
    return text.decode(errors="replace") if isinstance(text, bytes) else text


class Asker:
    """Calls NVML functions by name; what a driver does not know or a GPU does not have is None.

    lost: the error of a GPU that was there and does not answer any more.
    """

    def __init__(self, bindings, emit):
        self.bindings = bindings
        self.emit = emit
        self.subject = ""
        self.lost = None

    def __call__(self, name, *arguments):
        self.emit(doing="in " + name + self.subject)
        try:
            answer = getattr(self.bindings, name)(*arguments)
        except self.bindings.NVMLError as error:
            if error.value in (self.bindings.NVML_ERROR_GPU_IS_LOST, self.bindings.NVML_ERROR_RESET_REQUIRED):
                self.lost = error_text(self.bindings, error)
            return None
        except (self.bindings.NVMLLibraryMismatchError, AttributeError):
            return None
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def gpu(bindings, ask, index):
    ask.emit(doing="in nvmlDeviceGetHandleByIndex" + ask.subject)
    try:
        handle = bindings.nvmlDeviceGetHandleByIndex(index)
    except bindings.NVMLError as error:
        return {"index": index, "name": "unknown", "error": error_text(bindings, error)}
    get = lambda name, *arguments: ask(name, handle, *arguments)  # noqa: E731
    capability = get("nvmlDeviceGetCudaComputeCapability")
    # Version 2 counts the driver's own reserve apart, so that an idle GPU shows as unused.
    sizes = get("nvmlDeviceGetMemoryInfo", bindings.nvmlMemory_v2) or get("nvmlDeviceGetMemoryInfo")
    utilization = get("nvmlDeviceGetUtilizationRates")
    retired = [get("nvmlDeviceGetRetiredPages", cause) for cause in (0, 1)]
    remapped = get("nvmlDeviceGetRemappedRows")
    events = get("nvmlDeviceGetCurrentClocksEventReasons")
    if events is None:
        events = get("nvmlDeviceGetCurrentClocksThrottleReasons")
    ecc = get("nvmlDeviceGetEccMode")
    mig = get("nvmlDeviceGetMigMode")
    pci_info = get("nvmlDeviceGetPciInfo")
    power = get("nvmlDeviceGetPowerManagementLimit")
    power_default = get("nvmlDeviceGetPowerManagementDefaultLimit")
    state = get("nvmlDeviceGetPerformanceState")
    return {
        "index": index,
        "name": get("nvmlDeviceGetName") or "unknown",
        "uuid": get("nvmlDeviceGetUUID"),
        "pci_address": pci_address(pci_info),
        "compute_capability": "{}.{}".format(*capability) if capability else None,
        "memory_total": sizes.total if sizes else None,
        "memory_used": sizes.used if sizes else None,
        "performance_state": state if state is not None and state < 16 else None,
        "utilization_percent": utilization.gpu if utilization else None,
        "temperature_celsius": get("nvmlDeviceGetTemperature", 0),
        "power_limit_watts": power / 1000.0 if power is not None else None,
        "power_limit_default_watts": power_default / 1000.0 if power_default is not None else None,
        "persistence_mode": as_bool(get("nvmlDeviceGetPersistenceMode")),
        "compute_mode": compute_mode(get("nvmlDeviceGetComputeMode")),
        "mig_enabled": as_bool(mig[0]) if mig else None,
        "ecc_enabled": as_bool(ecc[0]) if ecc else None,
        "ecc_uncorrected_volatile": get("nvmlDeviceGetTotalEccErrors", 1, 0),
        "ecc_uncorrected_aggregate": get("nvmlDeviceGetTotalEccErrors", 1, 1),
        "retired_pages": sum(len(pages) for pages in retired if pages is not None) if any_known(retired) else None,
        "retired_pages_pending": as_bool(get("nvmlDeviceGetRetiredPagesPendingStatus")),
        "remapped_rows_pending": as_bool(remapped[2]) if remapped else None,
        "remapped_rows_failure": as_bool(remapped[3]) if remapped else None,
        "pcie_generation_current": get("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_generation_max": get("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width_current": get("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_width_max": get("nvmlDeviceGetMaxPcieLinkWidth"),
        "pcie_replay_counter": get("nvmlDeviceGetPcieReplayCounter"),
        "memory_clock_mhz": get("nvmlDeviceGetClockInfo", 2),
        "memory_clock_max_mhz": get("nvmlDeviceGetMaxClockInfo", 2),
        "event_reasons": events,
        "process_ids": process_ids(get),
        "error": ask.lost,
    }


def any_known(values):
    return any(value is not None for value in values)


def as_bool(value):
    return None if value is None else bool(value)


def compute_mode(value):
    return {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}.get(value)


def pci_address(info):
    """An NVML bus id in sysfs spelling: 00000000:3B:00.0 -> 0000:3b:00.0."""
    if info is None:
        return None
    text = info.busId.decode() if isinstance(info.busId, bytes) else info.busId
    domain, _, rest = text.lower().partition(":")
    return domain[-4:] + ":" + rest if rest else None


def process_ids(get):
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"):
        processes = get(name)
        if processes is not None:
            return sorted(process.pid for process in processes)
    return None


SOURCES = {"nvml": nvml}
