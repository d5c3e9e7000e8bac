"""The plain table of `nvidia-smi`, in its layouts since driver 340, and the lines it prints when it fails."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.readings import lowered, performance_state
from onecat.probe.importers.registry import Capture, Part, holds, importer
from onecat.probe.importers.text import decimal, enabled, known, pci_address, short_lines, size, whole

_ADDRESS = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*(.*)")
_NAMED = re.compile(r"([0-9]{1,3})\s{1,10}(\S.*?)(?:\s+(On|Off|N/A|ERR!|WDDM|TCC|MCDM))?")
_PROCESS = re.compile(
    r"([0-9]{1,3})(?:\s+(?:N/A|[0-9]+)\s+(?:N/A|[0-9]+))?\s+([0-9]{1,8})\s+([CGM+]{1,5})\s+(\S.*?)\s+(N/A|[0-9]+ ?MiB)"
)


@importer("nvidia-smi", recognises=holds("| NVIDIA-SMI ", "Persistence-M", "| Processes:"), hints=("nvidia-smi", "gpu"))
def nvidia_smi_table(capture: Capture) -> Part:
    """Driver, CUDA and GPUs; processes where the table shows any, or says that there are none.

    A name that the table cuts keeps its dots ("NVIDIA GeForce RTX 4080 ..."). An empty table of processes tells
    nothing: in a container those of others are not visible.
    """
    nvidia: dict[str, Any] = {}
    gpus: dict[int, dict[str, Any]] = {}
    processes: dict[int, list[dict[str, Any]]] = {}
    none_running = in_processes = in_mig = False
    gpu: dict[str, Any] | None = None
    for line in short_lines(capture.text, 400):
        stripped = line.strip()
        if not stripped.startswith("|"):
            continue
        _read_head(stripped, nvidia)
        cells = [cell.strip() for cell in stripped.strip("|").split("|")]
        if "Persistence-M" in line or "Bus-Id" in line:
            in_processes = in_mig = False
        elif "MIG devices:" in line:
            in_mig, gpu = True, None
        elif "Processes:" in line:
            in_processes, in_mig, gpu = True, False, None
        elif in_mig:
            _count_mig_device(cells, gpus)
        elif in_processes:
            none_running = none_running or "No running" in line
            _read_process(cells, processes)
        elif len(cells) == 3:
            gpu = _read_gpu(cells, gpus, gpu)
    for index, one in gpus.items():
        if index in processes or none_running or processes:
            one["processes"] = processes.get(index, [])
            one["process_ids"] = sorted({each["pid"] for each in one["processes"] if "C" in each["type"]})
    for each in processes.values():
        for process in each:
            del process["type"]
    if gpus:
        nvidia["gpus"] = list(gpus.values())
    return {"nvidia": nvidia} if nvidia else {}


def _read_head(line: str, nvidia: dict[str, Any]) -> None:
    driver = re.search(r"(?:Driver|KMD) Version: ([0-9][0-9.]{2,20})", line)
    cuda = re.search(r"CUDA (?:UMD )?Version: ([0-9][0-9.]{1,10})", line)
    for name, match in (("driver_version", driver), ("cuda_driver_version", cuda)):
        if match:
            nvidia.setdefault(name, match.group(1))


def _read_gpu(cells: list[str], gpus: dict[int, dict[str, Any]], gpu: dict[str, Any] | None) -> dict[str, Any] | None:
    """One of the lines of a GPU: the first begins it, those after it add to it. Returns the GPU they belong to."""
    address = _ADDRESS.match(cells[1])
    named = _NAMED.fullmatch(cells[0])
    if address and named:
        index = int(named.group(1))
        if index in gpus:
            return None
        gpus[index] = one = {"index": index, "pci_address": pci_address(address.group(1))}
        name = known(named.group(2))
        one.update(_present(name=name, persistence_mode=enabled(named.group(3))))
        _read_ecc(cells[2], one)
        if name is None or "ERR!" in cells[0]:
            one["error"] = "ERR!"
        return one
    if gpu is None:
        return None
    if re.search(r"\bP[0-9]{1,2}\b|[0-9]C\b|MiB", f"{cells[0]} {cells[1]}"):
        _read_second(cells, gpu)
    elif not cells[0] and not cells[1] and cells[2]:
        gpu.update(_present(mig_enabled=enabled(cells[2])))
        return None
    return gpu


def _read_ecc(cell: str, gpu: dict[str, Any]) -> None:
    """The column holds the number of uncorrected errors, Off without ECC, and On where MIG hides the number."""
    number = whole(cell)
    if number is not None:
        gpu.update(ecc_enabled=True, ecc_uncorrected_volatile=number)
    elif cell in ("On", "Off"):
        gpu["ecc_enabled"] = cell == "On"


def _read_second(cells: list[str], gpu: dict[str, Any]) -> None:
    temperature = re.search(r"(?<![0-9])([0-9]{1,3})C\b", cells[0])
    state = re.search(r"\bP([0-9]{1,2})\b", cells[0])
    power = re.search(r"([0-9]{1,5}W|N/A|ERR!) ?/ +?([0-9]{1,5}W|N/A|ERR!)", cells[0])
    used, _, total = cells[1].partition("/")
    busy, _, mode = cells[2].partition("%")
    gpu.update(
        _present(
            temperature_celsius=int(temperature.group(1)) if temperature else None,
            performance_state=performance_state(state.group()) if state else None,
            power_draw_watts=decimal(power.group(1)) if power else None,
            power_limit_watts=decimal(power.group(2)) if power else None,
            memory_used=size(used),
            memory_total=size(total),
            utilization_percent=whole(busy) if mode else None,
            compute_mode=_compute_mode(mode or cells[2].rpartition("  ")[2]),
        )
    )


def _compute_mode(text: str) -> str | None:
    """The table cuts "Exclusive_Process" to "E. Process"."""
    word = lowered(text) or ""
    return {"default": "default", "prohibited": "prohibited"}.get(word) or (
        {"process": "exclusive process", "thread": "exclusive thread"}.get(word.rpartition(" ")[2])
    )


def _count_mig_device(cells: list[str], gpus: dict[int, dict[str, Any]]) -> None:
    match = re.fullmatch(r"([0-9]{1,3})(?:\s+[0-9]{1,3}){3}", cells[0])
    if match and int(match.group(1)) in gpus:
        gpu = gpus[int(match.group(1))]
        gpu["mig_devices"] = gpu.get("mig_devices", 0) + 1


def _read_process(cells: list[str], processes: dict[int, list[dict[str, Any]]]) -> None:
    match = _PROCESS.fullmatch(cells[0]) if len(cells) == 1 else None
    if match:
        gpu, pid, kind, name, memory = match.groups()
        process = {"pid": int(pid), "type": kind, "name": known(name), "memory": size(memory)}
        processes.setdefault(int(gpu), []).append(process)


def _present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
