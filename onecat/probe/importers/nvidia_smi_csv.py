"""`nvidia-smi --query-gpu=... --format=csv`, with or without units, and `--query-compute-apps`.

Fields: `nvidia-smi --help-query-gpu`. Without the header line (noheader) nothing tells what the columns are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from onecat.probe.importers.readings import EVENT_REASONS, lowered, performance_state
from onecat.probe.importers.registry import Capture, Part, importer
from onecat.probe.importers.text import decimal, enabled, known, pci_address, short_lines, size, whole


def _mebibytes(value: str | None) -> int | None:
    """Sizes are in MiB, with the unit or (nounits) without."""
    number = whole(value)
    return size(value) if known(value) and "B" in (value or "") else (number * 1024**2 if number is not None else None)


def _bits(value: str | None) -> int | None:
    match = re.fullmatch(r"0x([0-9A-Fa-f]{1,16})", known(value) or "")
    return int(match.group(1), 16) if match else None


FIELDS: dict[str, tuple[str, Callable[[str | None], Any]]] = {
    "index": ("index", whole),
    "name": ("name", known),
    "gpu_name": ("name", known),
    "uuid": ("uuid", known),
    "gpu_uuid": ("uuid", known),
    "pci.bus_id": ("pci_address", pci_address),
    "gpu_bus_id": ("pci_address", pci_address),
    "compute_cap": ("compute_capability", known),
    "memory.total": ("memory_total", _mebibytes),
    "memory.used": ("memory_used", _mebibytes),
    "pstate": ("performance_state", performance_state),
    "utilization.gpu": ("utilization_percent", whole),
    "temperature.gpu": ("temperature_celsius", whole),
    "temperature.memory": ("temperature_memory_celsius", whole),
    "power.draw": ("power_draw_watts", decimal),
    "power.limit": ("power_limit_watts", decimal),
    "power.default_limit": ("power_limit_default_watts", decimal),
    "persistence_mode": ("persistence_mode", enabled),
    "compute_mode": ("compute_mode", lowered),
    "mig.mode.current": ("mig_enabled", enabled),
    "gsp.mode.current": ("", known),
    "ecc.mode.current": ("ecc_enabled", enabled),
    "ecc.mode.pending": ("ecc_enabled_pending", enabled),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected_volatile", whole),
    "ecc.errors.corrected.aggregate.total": ("ecc_corrected_aggregate", whole),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected_volatile", whole),
    "ecc.errors.uncorrected.aggregate.total": ("ecc_uncorrected_aggregate", whole),
    "retired_pages.pending": ("retired_pages_pending", enabled),
    "remapped_rows.correctable": ("remapped_rows_correctable", whole),
    "remapped_rows.uncorrectable": ("remapped_rows_uncorrectable", whole),
    "remapped_rows.pending": ("remapped_rows_pending", enabled),
    "remapped_rows.failure": ("remapped_rows_failure", enabled),
    "pcie.link.gen.current": ("pcie_generation_current", whole),
    "pcie.link.gen.max": ("pcie_generation_max", whole),
    "pcie.link.width.current": ("pcie_width_current", whole),
    "pcie.link.width.max": ("pcie_width_max", whole),
    "clocks.current.graphics": ("graphics_clock_mhz", whole),
    "clocks.gr": ("graphics_clock_mhz", whole),
    "clocks.max.graphics": ("graphics_clock_max_mhz", whole),
    "clocks.max.gr": ("graphics_clock_max_mhz", whole),
    "clocks.current.memory": ("memory_clock_mhz", whole),
    "clocks.mem": ("memory_clock_mhz", whole),
    "clocks.max.memory": ("memory_clock_max_mhz", whole),
    "clocks.max.mem": ("memory_clock_max_mhz", whole),
    "clocks.applications.graphics": ("graphics_clock_application_mhz", whole),
    "clocks.default_applications.graphics": ("graphics_clock_application_default_mhz", whole),
    "clocks.applications.memory": ("memory_clock_application_mhz", whole),
    "clocks_event_reasons.active": ("event_reasons", _bits),
    "clocks_throttle_reasons.active": ("event_reasons", _bits),
    "fabric.state": ("fabric_state", lowered),
    "fabric.status": ("fabric_status", lowered),
}
"""Columns, the fact of a GPU that each is, and how its value is read."""

_PLAIN = frozenset(FIELDS) | {"driver_version", "timestamp", "count", "serial", "vbios_version", "pid", "process_name"}
_COLUMN = re.compile(r"([a-z][\w.]{1,60})(?: \[[A-Za-z%]{1,4}\])?")


@importer(
    "nvidia-smi --query-gpu", recognises=lambda text: next(_tables(text), None) is not None, hints=("query", "csv")
)
def nvidia_smi_csv(capture: Capture) -> Part:
    """GPUs, the driver, and the programs that compute."""
    nvidia: dict[str, Any] = {}
    gpus: list[dict[str, Any]] = []
    for columns, rows in _tables(capture.text):
        is_of_processes = "pid" in columns
        if "gpu_util" in columns or "retired_pages.address" in columns or "max_memory_usage" in columns:
            continue
        for number, row in enumerate(rows):
            values = dict(zip(columns, row, strict=False))
            if known(values.get("driver_version")):
                nvidia.setdefault("driver_version", known(values["driver_version"]))
            gpu = _gpu(values)
            if is_of_processes:
                _add_process(gpus, gpu, values)
            elif gpu:
                if not {"index", "uuid", "pci_address"} & set(gpu) and len(rows) == whole(
                    values.get("count", str(len(rows)))
                ):
                    gpu["index"] = number
                gpus.append(gpu)
    if gpus:
        nvidia["gpus"] = gpus
    return {"nvidia": nvidia} if nvidia else {}


def _tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Columns and rows of each table in a text."""
    columns: list[str] = []
    rows: list[list[str]] = []
    for line in [*short_lines(text, 20000), ""]:
        header = _header(line) if ", " in line or line.strip() in _PLAIN else None
        cells = line.strip().split(", ")
        if header:
            if columns:
                yield columns, rows
            columns, rows = header, []
        elif columns and line.strip() and len(cells) >= len(columns):
            rows.append(_fitted(cells, columns))
        elif columns:
            yield columns, rows
            columns, rows = [], []


def _fitted(cells: list[str], columns: list[str]) -> list[str]:
    """Cells by column; a comma within the name of a process makes more of them than there are columns."""
    more = len(cells) - len(columns)
    if more and "process_name" in columns:
        at = columns.index("process_name")
        cells = [*cells[:at], ", ".join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
    return cells[: len(columns)]


def _header(line: str) -> list[str] | None:
    columns = []
    for cell in line.strip().split(", "):
        match = _COLUMN.fullmatch(cell)
        if match is None:
            return None
        columns.append(match.group(1))
    return columns if _PLAIN & set(columns) and len(columns) > 1 else None


def _gpu(values: dict[str, str]) -> dict[str, Any]:
    gpu: dict[str, Any] = {}
    for column, (name, read) in FIELDS.items():
        value = read(values[column]) if name and column in values else None
        if value is not None:
            gpu.setdefault(name, value)
    bits = [
        (EVENT_REASONS.get(column.partition("reasons.")[2].removeprefix("gpu_")), enabled(value))
        for column, value in values.items()
        if column.startswith(("clocks_event_reasons.", "clocks_throttle_reasons."))
    ]
    stated = [(bit, active) for bit, active in bits if bit is not None and active is not None]
    if stated:
        gpu.setdefault("event_reasons", sum({bit for bit, active in stated if active}))
    error = next(
        (each.strip("[] ") for each in values.values() if "GPU is lost" in each or "requires reset" in each), None
    )
    if error:
        gpu["error"] = error
    return gpu


def _add_process(gpus: list[dict[str, Any]], gpu: dict[str, Any], values: dict[str, str]) -> None:
    """A row of a program that computes belongs to the GPU that it names."""
    pid = whole(values.get("pid"))
    identity: dict[str, Any] = {key: gpu[key] for key in ("uuid", "pci_address", "index", "name") if key in gpu}
    if pid is None or not {"uuid", "pci_address", "index"} & set(identity):
        return
    keys = {key: value for key, value in identity.items() if key != "name"}
    owner = next((each for each in gpus[-64:] if keys.items() <= each.items() and "processes" in each), None)
    if owner is None:
        owner = {**identity, "processes": [], "process_ids": []}
        gpus.append(owner)
    memory = _mebibytes(values.get("used_gpu_memory") or values.get("used_memory"))
    owner["processes"].append({"pid": pid, "name": known(values.get("process_name")), "memory": memory})
    owner["process_ids"].append(pid)
