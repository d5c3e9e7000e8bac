"""What the PCIe link of each GPU does under load, measured with nothing but the driver's own libraries.

Pinned host memory is copied to the GPU for a second while NVML watches the link, since an idle link is slow on purpose.
GPU after GPU, because GPUs behind one switch share its link upwards; each in a process of its own, whose end gives back
all it had; and none that anything else uses.
"""

# ruff: noqa: PTH120
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import time

from onecat.probe.agent.core import Unknown
from onecat.probe.agent.sources import nvml

MEASURED_SECONDS = 1.0
WATCH_SECONDS = 0.02
ALL_SECONDS = 110.0
"""For all GPUs together, starting the driver included; onecat.probe.program waits a little longer than that."""
CHUNK = 32 << 20
CHUNKS = 16
NEEDED = 1 << 30
"""Bytes that must be free on the GPU and on the host, far more than is taken."""
HELD = 1 << 30
"""Bytes in use without a process that NVML shows: in a container those of others are hidden, their memory is not."""


def load(machine, emit):
    # Without persistence the driver sets up a GPU first, which takes longer than any question.
    limit = 2 * machine.timeout + MEASURED_SECONDS
    end = time.monotonic() + ALL_SECONDS
    emit(limit=ALL_SECONDS + 1)
    path = nvml.find_library()
    if path is None:
        raise Unknown("absent", f"{nvml.LIBRARY} was not found")
    from onecat.probe.agent.sources import nvml_library

    bindings, _ = nvml_library.load(path, lambda **part: None)
    index, count, hung = 0, 1, []  # type: int, int, list[str]
    while index < count:
        result = {"gpu": index}  # type: dict[str, object]
        counts = []  # type: list[int]

        def on_message(process, message, result=result, counts=counts):
            counts.extend(message.pop("count", []))
            result.update(message)

        if time.monotonic() > end:
            emit(nvidia={"loads": [dict(result, skipped="those before it took all the time")]})
            index += 1
            continue
        processes = [nvml_library.Process(measure_gpu, machine, bindings, os.path.dirname(path), index)]
        failed = nvml_library.follow(processes, min(end, time.monotonic() + limit), on_message, lambda: None)
        for process in processes:
            process.kill()
            hung.append(f"no answer within {limit:g} s" + process.at)
            result["error"] = hung[-1]
        for process in failed:
            result["error"] = process.failure + process.at
        count = counts[0] if counts else count
        if counts or len(result) > 1:
            emit(nvidia={"loads": [result]})
        index += 1
    if hung:
        raise Unknown("timeout", "; ".join(hung))


def measure_gpu(report, machine, bindings, directory, index):
    """The task of the process that measures a GPU: reports the fields of a LoadMeasurement and the number of GPUs."""
    from onecat.probe.agent.sources import cuda, nvml_gpu, nvml_library

    error = nvml_gpu.start_nvml(bindings, report)
    if error:
        raise Unknown("error", error)
    ask = nvml_library.Asker(bindings, report, f" of GPU {index}")
    report(count=[ask("nvmlDeviceGetCount") or 0])
    handle, error = nvml_gpu.handle_of(bindings, report, index)
    if error:
        report(error=error)
        return
    get = lambda name, *arguments: ask(name, handle, *arguments)  # noqa: E731
    address = nvml_gpu.pci_address(get("nvmlDeviceGetPciInfo"))
    reason = why_not(machine, bindings, get, nvml_gpu)
    if reason or address is None:
        report(skipped=reason or "its PCI address is not known")
        return
    # Both would change which GPUs CUDA shows, and in which order; this asks for one by its address.
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        os.environ.pop(name, None)
    stay_near(machine, address)
    before = get("nvmlDeviceGetPcieReplayCounter")
    seen = {"link_generation": None, "link_width": None, "event_reasons": 0}  # type: dict[str, int | None]
    watched = [0.0]

    def watch():
        if time.monotonic() - watched[0] < WATCH_SECONDS:
            return
        watched[0] = time.monotonic()
        for name, function in (
            ("link_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
            ("link_width", "nvmlDeviceGetCurrPcieLinkWidth"),
        ):
            value = get(function)
            if value is not None:
                seen[name] = max(value, seen[name] or 0)
        reasons = nvml_gpu.event_reasons(get)
        seen["event_reasons"] = None if reasons is None else (seen["event_reasons"] or 0) | reasons

    try:
        moved, seconds = cuda.copy_to_gpu(
            directory,
            address,
            CHUNK,
            CHUNKS,
            MEASURED_SECONDS,
            watch,
            lambda doing: report(doing=f"{doing} of GPU {index}"),
        )
    except cuda.CudaError as failure:
        report(error=str(failure))
        return
    after = get("nvmlDeviceGetPcieReplayCounter")
    report(
        gigabytes_per_second=round(moved / seconds / 1e9, 2),
        seconds=round(seconds, 2),
        replays=after - before if None not in (before, after) else None,
        **seen,
    )


def why_not(machine, bindings, get, nvml_gpu):
    """Why a GPU must not be put under load, or None."""
    processes = nvml_gpu.gpu_processes(machine, get)
    sizes = get("nvmlDeviceGetMemoryInfo", bindings.nvmlMemory_v2)
    mig = get("nvmlDeviceGetMigMode")
    if processes is None:
        return "which programs use it is not known"
    if processes:
        names = ["{} {}".format(each["name"] or "process", each["pid"]) for each in processes[:3]]
        return "in use by " + ", ".join(names + ["..."] * (len(processes) > 3))
    if sizes and sizes.used > HELD:
        return f"{sizes.used >> 20} MiB of it are in use by programs that are not shown here"
    if mig and mig[0]:
        return "it is divided by MIG"
    if nvml_gpu.COMPUTE_MODES.get(get("nvmlDeviceGetComputeMode")) == "prohibited":
        return "its compute mode is prohibited"
    if sizes and sizes.free < NEEDED:
        return "too little of its memory is free"
    available = [line.split() for line in (machine.read_or_none("/proc/meminfo") or "").splitlines()]
    if any(words[0] == "MemAvailable:" and int(words[1]) << 10 < NEEDED for words in available if len(words) > 1):
        return "too little memory of the host is free"
    return None


def stay_near(machine, address):
    """Let this process run and take its memory where the GPU is attached: another socket would lower the figure."""
    text = machine.read_or_none(f"/sys/bus/pci/devices/{address}/local_cpulist") or ""
    near = set()  # type: set[int]
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        near.update(range(int(first), int(last or first) + 1))
    allowed = near & os.sched_getaffinity(0)
    if allowed:
        os.sched_setaffinity(0, allowed)


SOURCES = {"load": load}
