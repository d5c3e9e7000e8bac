"""What NVML tells of each GPU and of each pair of GPUs."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import ctypes
import time

from onecat.probe.agent.core import Unknown
from onecat.probe.agent.sources.nvml_library import Asker, Process, error_text, follow

COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
VIRTUALIZATION_MODES = {0: "none", 1: "pass-through", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}
FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}
ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's level of the nearest common ancestor in the words of `nvidia-smi topo -m`."""
PEER_STATES = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by regkey",
    5: "not supported",
    6: "unknown",
}
PEER_READ, PEER_WRITE, PEER_NVLINK = 0, 1, 2
REMOTE_GPU, REMOTE_SWITCH = 0, 2
GRAPHICS_CLOCK, MEMORY_CLOCK = 0, 2
SLOWDOWN_THRESHOLD = 1
MEMORY_TEMPERATURE, LINK_SPEED = 82, 164
LINK_SPEED_BY_LINK = (84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137)
"""Field values of NVML: of any link, its number being the scope, and of the first twelve for drivers without that."""
VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
PROCESS_LISTS = (
    ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
    ("nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2"),
)
PAIRS = -1
PATIENCE = 0.3
"""Share of the time after which pairs are asked for although a GPU has not answered yet."""
STUCK_SECONDS = 0.25
WAITS_FOR_A_DISK = ("io_schedule", "folio_wait", "wait_on_page", "blk_", "rq_qos", "jbd2_", "xfs_", "btrfs_", "nfs")


def observe_gpus(machine, bindings, deadline, emit):
    """Tell of the driver, each GPU and each pair of GPUs; a GPU that does not answer by the deadline is an error.

    Raises Unknown (timeout) when one did not, after telling all that is known.
    """
    survey = Survey(machine, bindings, deadline, emit)
    failed = follow(survey.processes, deadline, survey.on_message, survey.on_idle)
    survey.finish(failed)
    if survey.processes:
        raise Unknown("timeout", f"no answer within {machine.timeout:g} s while {survey.doing()}")


class Survey:
    """What the processes that ask GPUs have said.

    subjects: the index of the GPU that each process is about, or PAIRS. ready: GPUs that are known in full or in error
    and have not been told, told: those that have.
    """

    def __init__(self, machine, bindings, deadline, emit):
        self.machine = machine
        self.bindings = bindings
        self.emit = emit
        self.patience = time.monotonic() + (deadline - time.monotonic()) * PATIENCE
        self.count = 0
        self.gpus = {}  # type: dict[int, dict[str, object]]
        self.links = {}  # type: dict[int, list[list[object]]]
        self.pairs = []  # type: list[dict[str, int]]
        self.ready = []  # type: list[int]
        self.told = []  # type: list[int]
        self.processes = []  # type: list[Process]
        self.subjects = {}  # type: dict[Process, int]
        self.start(0, ask_driver, machine, bindings)

    def start(self, subject, task, *arguments):
        self.processes.append(Process(task, *arguments))
        self.subjects[self.processes[-1]] = subject

    def on_message(self, process, message):
        subject = self.subjects[process]
        if "nvidia" in message:
            self.emit(**message)
        if "count" in message:
            self.count = message["count"]
            for index in range(1, self.count):
                self.start(index, ask_gpu, self.machine, self.bindings, index)
        if "gpu" in message:
            self.gpus.setdefault(subject, {}).update(message["gpu"])
        if "links" in message:
            self.links[subject] = message["links"]
        if "pair" in message:
            self.pairs.append(message["pair"])
        if "answered" in message:
            self.ready.append(subject)
            # In their order, as long as none keeps the others waiting.
            while len(self.told) in self.ready:
                self.tell(len(self.told))
            if len(self.told) == self.count:
                self.ask_for_pairs()

    def on_idle(self):
        self.tell(*sorted(self.ready))
        self.emit(doing=self.doing())
        if time.monotonic() > self.patience:
            self.ask_for_pairs()

    def doing(self):
        return " and ".join(process.doing or "starting" for process in self.processes)

    def tell(self, *indexes):
        for index in indexes:
            self.ready.remove(index)
            self.told.append(index)
            self.emit(nvidia={"gpus": [dict({"index": index, "name": "unknown"}, **self.gpus[index])]})

    def ask_for_pairs(self):
        able = sorted(index for index in self.ready + self.told if self.gpus[index].get("error") is None)
        if len(able) > 1 and PAIRS not in self.subjects.values():
            self.start(PAIRS, ask_pairs, self.bindings, able)

    def finish(self, failed):
        """Stop what still runs, and tell the rest with what kept it from being known."""
        for process in self.processes:
            process.kill()
        for process in self.processes + failed:
            index = self.subjects[process]
            if index in range(self.count) and index not in self.ready + self.told:
                reason = process.failure or f"no answer within {self.machine.timeout:g} s"
                self.gpus.setdefault(index, {})["error"] = reason + process.at
                self.ready.append(index)
        self.tell(*sorted(self.ready))
        self.emit(nvidia={"pairs": [finished_pair(pair, self.gpus, self.links) for pair in self.pairs]})
        for process in failed:
            self.emit(note={"kind": "error", "text": process.failure + process.at})


def start_nvml(bindings, report):
    """Why NVML does not work, None when it does; each process must start it for itself."""
    report(doing="in nvmlInit")
    try:
        bindings.nvmlInit()
    except bindings.NVMLError as error:
        return error_text(bindings, error)
    return None


def ask_driver(report, machine, bindings):
    """The task of the first process: the versions and the number of GPUs, then the first GPU."""
    error = start_nvml(bindings, report)
    if error:
        report(nvidia={"nvml_error": error})
        return
    ask = Asker(bindings, report)
    cuda = ask("nvmlSystemGetCudaDriverVersion_v2") or ask("nvmlSystemGetCudaDriverVersion")
    report(
        nvidia={
            "driver_version": ask("nvmlSystemGetDriverVersion"),
            "cuda_driver_version": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        }
    )
    count = ask("nvmlDeviceGetCount") or 0
    report(count=count)
    if count:
        ask_started(report, machine, bindings, 0)


def ask_gpu(report, machine, bindings, index):
    """The task of the process of a GPU."""
    error = start_nvml(bindings, report)
    if error:
        report(gpu={"error": error}, answered=True)
    else:
        ask_started(report, machine, bindings, index)


def ask_started(report, machine, bindings, index):
    """Report the GPU in parts."""
    ask = Asker(bindings, report, f" of GPU {index}")
    handle, error = handle_of(bindings, report, index)
    if error:
        report(gpu={"error": error}, answered=True)
        return
    for part in (identity, state, memory_health, clocks_and_link, programs):
        report(gpu=part(machine, lambda name, *arguments: ask(name, handle, *arguments), bindings))
    links, remotes = nvlinks(lambda name, *arguments: ask(name, handle, *arguments), bindings)
    report(gpu={"nvlinks": links, "error": ask.lost}, links=remotes, answered=True)


def ask_pairs(report, bindings, indexes):
    """The task of the process that asks what lies between GPUs, of those that have answered."""
    if start_nvml(bindings, report):
        return
    handles = {index: handle_of(bindings, report, index)[0] for index in indexes}
    for first in indexes:
        for second in indexes:
            if first < second and handles[first] and handles[second]:
                ask = Asker(bindings, report, f" of GPU {first} and GPU {second}")
                report(pair=dict(pair(ask, handles[first], handles[second]), first=first, second=second))


def handle_of(bindings, report, index):
    """The handle of a GPU, or None and why there is none."""
    report(doing=f"in nvmlDeviceGetHandleByIndex of GPU {index}")
    try:
        return bindings.nvmlDeviceGetHandleByIndex(index), None
    except bindings.NVMLError as error:
        return None, error_text(bindings, error)


def identity(machine, get, bindings):
    capability = get("nvmlDeviceGetCudaComputeCapability")
    mig = get("nvmlDeviceGetMigMode")
    return {
        "name": get("nvmlDeviceGetName") or "unknown",
        "uuid": get("nvmlDeviceGetUUID"),
        "pci_address": pci_address(get("nvmlDeviceGetPciInfo")),
        "compute_capability": "{}.{}".format(*capability) if capability else None,
        "compute_mode": COMPUTE_MODES.get(get("nvmlDeviceGetComputeMode")),
        "persistence_mode": as_bool(get("nvmlDeviceGetPersistenceMode")),
        "virtualization_mode": VIRTUALIZATION_MODES.get(get("nvmlDeviceGetVirtualizationMode")),
        "gsp_firmware_version": get("nvmlDeviceGetGspFirmwareVersion"),
        "mig_enabled": as_bool(mig[0]) if mig else None,
        "mig_devices": mig_devices(get) if mig and mig[0] else None,
    }


def state(machine, get, bindings):
    # Version 2 counts the driver's own reserve apart, so that an idle GPU shows as unused.
    sizes = get("nvmlDeviceGetMemoryInfo", bindings.nvmlMemory_v2) or get("nvmlDeviceGetMemoryInfo")
    bar1 = get("nvmlDeviceGetBAR1MemoryInfo")
    utilization = get("nvmlDeviceGetUtilizationRates")
    performance = get("nvmlDeviceGetPerformanceState")
    slowdown = get("nvmlDeviceGetTemperatureThreshold", SLOWDOWN_THRESHOLD)
    hot_memory = field_values(get, [MEMORY_TEMPERATURE])[0]
    return {
        "memory_total": sizes.total if sizes else None,
        "memory_used": sizes.used if sizes else None,
        "bar1_total": bar1.bar1Total if bar1 else None,
        "bar1_used": bar1.bar1Used if bar1 else None,
        "performance_state": performance if performance is not None and performance < 16 else None,
        "utilization_percent": utilization.gpu if utilization else None,
        "temperature_celsius": get("nvmlDeviceGetTemperature", 0),
        "temperature_memory_celsius": hot_memory or None,
        # Drivers for Hopper and later may answer with a distance, which is not a temperature.
        "temperature_slowdown_celsius": slowdown if slowdown and 50 <= slowdown <= 150 else None,
        "power_draw_watts": watts(get("nvmlDeviceGetPowerUsage")),
        "power_limit_watts": watts(get("nvmlDeviceGetPowerManagementLimit")),
        "power_limit_default_watts": watts(get("nvmlDeviceGetPowerManagementDefaultLimit")),
    }


def memory_health(machine, get, bindings):
    ecc = get("nvmlDeviceGetEccMode")
    retired = [get("nvmlDeviceGetRetiredPages", cause) for cause in (0, 1)]
    known = [pages for pages in retired if pages is not None]
    remapped = get("nvmlDeviceGetRemappedRows")
    return {
        "ecc_enabled": as_bool(ecc[0]) if ecc else None,
        "ecc_enabled_pending": as_bool(ecc[1]) if ecc else None,
        "ecc_corrected_volatile": get("nvmlDeviceGetTotalEccErrors", 0, 0),
        "ecc_corrected_aggregate": get("nvmlDeviceGetTotalEccErrors", 0, 1),
        "ecc_uncorrected_volatile": get("nvmlDeviceGetTotalEccErrors", 1, 0),
        "ecc_uncorrected_aggregate": get("nvmlDeviceGetTotalEccErrors", 1, 1),
        "retired_pages": sum(map(len, known)) if known else None,
        "retired_pages_pending": as_bool(get("nvmlDeviceGetRetiredPagesPendingStatus")),
        "remapped_rows_correctable": remapped[0] if remapped else None,
        "remapped_rows_uncorrectable": remapped[1] if remapped else None,
        "remapped_rows_pending": as_bool(remapped[2]) if remapped else None,
        "remapped_rows_failure": as_bool(remapped[3]) if remapped else None,
    }


def clocks_and_link(machine, get, bindings):
    events = event_reasons(get)
    fabric = fabric_info(get, bindings)
    return {
        "pcie_generation_current": get("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_generation_max": get("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width_current": get("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_width_max": get("nvmlDeviceGetMaxPcieLinkWidth"),
        "pcie_replay_counter": get("nvmlDeviceGetPcieReplayCounter"),
        "graphics_clock_mhz": get("nvmlDeviceGetClockInfo", GRAPHICS_CLOCK),
        "graphics_clock_max_mhz": get("nvmlDeviceGetMaxClockInfo", GRAPHICS_CLOCK),
        "graphics_clock_application_mhz": get("nvmlDeviceGetApplicationsClock", GRAPHICS_CLOCK),
        "graphics_clock_application_default_mhz": get("nvmlDeviceGetDefaultApplicationsClock", GRAPHICS_CLOCK),
        "memory_clock_mhz": get("nvmlDeviceGetClockInfo", MEMORY_CLOCK),
        "memory_clock_max_mhz": get("nvmlDeviceGetMaxClockInfo", MEMORY_CLOCK),
        "memory_clock_application_mhz": get("nvmlDeviceGetApplicationsClock", MEMORY_CLOCK),
        "event_reasons": events,
        "fabric_state": fabric[0],
        "fabric_status": fabric[1],
    }


def event_reasons(get):
    """Why the clocks are low, by the function's new name or by its old one."""
    reasons = get("nvmlDeviceGetCurrentClocksEventReasons")
    return get("nvmlDeviceGetCurrentClocksThrottleReasons") if reasons is None else reasons


def programs(machine, get, bindings):
    processes = gpu_processes(machine, get)
    return {
        "process_ids": None if processes is None else [each["pid"] for each in processes],
        "processes": processes,
    }


def as_bool(value):
    return None if value is None else bool(value)


def watts(milliwatts):
    return None if milliwatts is None else milliwatts / 1000.0


def pci_address(info):
    """An NVML bus id in sysfs spelling: 00000000:3B:00.0 -> 0000:3b:00.0."""
    if info is None:
        return None
    text = info.busId.decode() if isinstance(info.busId, bytes) else info.busId
    domain, _, rest = text.lower().partition(":")
    return domain[-4:] + ":" + rest if rest else None


def mig_devices(get):
    """How many MIG devices a GPU is divided into."""
    places = range(get("nvmlDeviceGetMaxMigDeviceCount") or 0)
    return sum(get("nvmlDeviceGetMigDeviceHandleByIndex", place) is not None for place in places)


def fabric_info(get, bindings):
    """State and status of a GPU's place in an NVSwitch fabric, None where it has none."""
    info = bindings.c_nvmlGpuFabricInfoV_t()
    if get("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info)) is None:
        info = bindings.c_nvmlGpuFabricInfo_t()
        if get("nvmlDeviceGetGpuFabricInfo", ctypes.byref(info)) is None:
            return None, None
    words = FABRIC_STATES.get(info.state)
    # The status says nothing before the state is "completed" (nvml.h).
    return words, error_text(bindings, bindings.NVMLError(info.status)).lower() if words == "completed" else None


def field_values(get, fields):
    """The values of NVML fields, None for those that this GPU or driver does not have."""
    answers = get("nvmlDeviceGetFieldValues", fields)
    return [
        getattr(each.value, VALUE_TYPES[each.valueType])
        if each.nvmlReturn == 0 and each.valueType < len(VALUE_TYPES)
        else None
        for each in answers or []
    ] or [None] * len(fields)


def nvlinks(get, bindings):
    """The NVLinks of a GPU, None when it has none, and the kind and PCI address of the other end of each active one."""
    states = [(link, get("nvmlDeviceGetNvLinkState", link)) for link in range(bindings.NVML_NVLINK_MAX_LINKS)]
    states = [(link, active) for link, active in states if active is not None]
    if not states:
        return None, []
    speeds = field_values(get, [(LINK_SPEED, link) for link, _ in states])
    if not any(speeds):
        known = [link for link, _ in states if link < len(LINK_SPEED_BY_LINK)]
        speeds = field_values(get, [LINK_SPEED_BY_LINK[link] for link in known]) + [None] * len(states)
    links, remotes = [], []
    for (link, active), speed in zip(states, speeds):  # noqa: B905 - of Python 3.10
        entry = {"link": link, "active": bool(active)}  # type: dict[str, object]
        if active:
            entry["gigabytes_per_second"] = speed / 1000.0 if speed else None
            entry["replay_errors"] = get("nvmlDeviceGetNvLinkErrorCounter", link, bindings.NVML_NVLINK_ERROR_DL_REPLAY)
            entry["crc_errors"] = get("nvmlDeviceGetNvLinkErrorCounter", link, bindings.NVML_NVLINK_ERROR_DL_CRC_FLIT)
            kind = get("nvmlDeviceGetNvLinkRemoteDeviceType", link)
            remotes.append([kind, pci_address(get("nvmlDeviceGetNvLinkRemotePciInfo", link))])
        links.append(entry)
    return links, remotes


def pair(ask, first, second):
    return {
        "ancestor": ask("nvmlDeviceGetTopologyCommonAncestor", first, second),
        "read": ask("nvmlDeviceGetP2PStatus", first, second, PEER_READ),
        "write": ask("nvmlDeviceGetP2PStatus", first, second, PEER_WRITE),
        "nvlink": ask("nvmlDeviceGetP2PStatus", first, second, PEER_NVLINK),
    }


def finished_pair(pair, known, links):
    """A pair in the form of the facts. known: the GPUs; links: the other ends of the active NVLinks of each."""
    first, second = pair["first"], pair["second"]
    count = nvlinks_between(pair, known, links)
    return {
        "first": first,
        "second": second,
        "connection": f"NV{count}" if count else ANCESTORS.get(pair["ancestor"]),
        "peer_read": PEER_STATES.get(pair["read"]),
        "peer_write": PEER_STATES.get(pair["write"]),
    }


def nvlinks_between(pair, known, links):
    """How many NVLinks join two GPUs: those that end at the other one, or the lower number of those to switches."""
    ends = [links.get(pair[each], []) for each in ("first", "second")]
    address = known.get(pair["second"], {}).get("pci_address")
    direct = sum(kind in (REMOTE_GPU, None) and end == address and address is not None for kind, end in ends[0])
    if direct or pair["nvlink"] != 0:
        return direct
    return min(sum(kind == REMOTE_SWITCH for kind, _ in each) for each in ends)


def gpu_processes(machine, get):
    """The programs that use a GPU, by their number; None when NVML does not tell."""
    found = {}  # type: dict[int, dict[str, object]]
    known = False
    for newer, older in PROCESS_LISTS:
        processes = get(newer)
        if processes is None:
            processes = get(older)
        known = known or processes is not None
        for process in processes or []:
            found[process.pid] = {"pid": process.pid, "name": program_name(machine, process.pid)}
            found[process.pid]["memory"] = process.usedGpuMemory
    stuck = stuck_in_kernel(machine, list(found))
    for pid, function in stuck.items():
        found[pid]["stuck_in"] = function
    return [found[pid] for pid in sorted(found)] if known else None


def program_name(machine, pid):
    return machine.read_or_none(f"/proc/{pid}/comm") or None


def stuck_in_kernel(machine, pids):
    """Of processes that cannot be interrupted and do not wait for a disk: the kernel function they stay in."""
    before = {pid: kernel_function(machine, pid) for pid in pids}
    before = {pid: function for pid, function in before.items() if function}
    if not before:
        return {}
    time.sleep(STUCK_SECONDS)
    return {pid: function for pid, function in before.items() if kernel_function(machine, pid) == function}


def kernel_function(machine, pid):
    """The function in which a process sleeps uninterruptibly, None when it does not or that may not be seen."""
    status = machine.read_or_none(f"/proc/{pid}/stat") or ""
    if not status.rpartition(") ")[2].startswith("D"):
        return None
    stack = [line.partition("] ")[2] for line in (machine.read_or_none(f"/proc/{pid}/stack") or "").splitlines()]
    driver = [frame for frame in stack if "[nvidia" in frame]
    function = (driver or stack or [machine.read_or_none(f"/proc/{pid}/wchan") or ""])[0].partition("+")[0]
    return None if function in ("", "0") or (not driver and function.startswith(WAITS_FOR_A_DISK)) else function
