"""A GPU's report as a tree of readings, and its facts: what `nvidia-smi -q` prints as text and as XML says the same.

Labels are compared in one spelling: "FB Memory Usage" and <fb_memory_usage> are both fb_memory_usage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from onecat.probe.importers.text import decimal, enabled, known, pci_address, size, whole


@dataclass
class Reading:
    """One line or element: its label in plain spelling, its value, and what is below it."""

    label: str
    value: str | None = None
    below: list[Reading] = field(default_factory=list)

    def find(self, path: str) -> Reading | None:
        """The first reading at a path of labels, as "pci/link_width"."""
        at: Reading | None = self
        for label in path.split("/"):
            at = next((each for each in at.below if each.label == label), None) if at else None
        return at

    def everything(self) -> Iterator[Reading]:
        """All readings below this one, at any depth."""
        waiting = list(reversed(self.below))
        while waiting:
            one = waiting.pop()
            yield one
            waiting.extend(reversed(one.below))


def plain_label(text: str) -> str:
    """A label in the spelling that text and XML share."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def lowered(value: str | None) -> str | None:
    """A word of a fixed set, as facts spell it: "Exclusive_Process" is "exclusive process"."""
    found = known(value)
    return found.lower().replace("_", " ") if found else None


def performance_state(value: str | None) -> int | None:
    """P8 as 8."""
    match = re.fullmatch(r"P([0-9]{1,2})", known(value) or "")
    return int(match.group(1)) if match else None


_POWER = ("gpu_power_readings", "power_readings")

FIELDS: tuple[tuple[str, Callable[[str | None], Any], tuple[str, ...]], ...] = (
    ("name", known, ("product_name",)),
    ("uuid", known, ("gpu_uuid", "uuid")),
    ("memory_total", size, ("fb_memory_usage/total",)),
    ("memory_used", size, ("fb_memory_usage/used",)),
    ("bar1_total", size, ("bar1_memory_usage/total",)),
    ("bar1_used", size, ("bar1_memory_usage/used",)),
    ("performance_state", performance_state, ("performance_state",)),
    ("utilization_percent", whole, ("utilization/gpu", "utilization/gpu_util")),
    ("temperature_celsius", whole, ("temperature/gpu_current_temp", "temperature/gpu_temp")),
    ("temperature_memory_celsius", whole, ("temperature/memory_current_temp", "temperature/memory_temp")),
    (
        "temperature_slowdown_celsius",
        whole,
        ("temperature/gpu_slowdown_temp", "temperature/gpu_temp_slow_threshold"),
    ),
    (
        "power_draw_watts",
        decimal,
        tuple(f"{at}/{name}" for at in _POWER for name in ("power_draw", "average_power_draw", "instant_power_draw")),
    ),
    (
        "power_limit_watts",
        decimal,
        tuple(f"{at}/{name}" for at in _POWER for name in ("current_power_limit", "power_limit")),
    ),
    ("power_limit_default_watts", decimal, tuple(f"{at}/default_power_limit" for at in _POWER)),
    ("persistence_mode", enabled, ("persistence_mode",)),
    ("compute_mode", lowered, ("compute_mode",)),
    ("virtualization_mode", lowered, ("gpu_virtualization_mode/virtualization_mode",)),
    ("mig_enabled", enabled, ("mig_mode/current", "mig_mode/current_mig")),
    ("gsp_firmware_version", known, ("gsp_firmware_version",)),
    ("ecc_enabled", enabled, ("ecc_mode/current", "ecc_mode/current_ecc")),
    ("ecc_enabled_pending", enabled, ("ecc_mode/pending", "ecc_mode/pending_ecc")),
    (
        "retired_pages_pending",
        enabled,
        tuple(f"retired_pages/pending{name}" for name in ("_page_blacklist", "_blacklist", "_retirement", "")),
    ),
    ("remapped_rows_correctable", whole, ("remapped_rows/correctable_error", "remapped_rows/remapped_row_corr")),
    ("remapped_rows_uncorrectable", whole, ("remapped_rows/uncorrectable_error", "remapped_rows/remapped_row_unc")),
    ("remapped_rows_pending", enabled, ("remapped_rows/pending", "remapped_rows/remapped_row_pending")),
    (
        "remapped_rows_failure",
        enabled,
        ("remapped_rows/remapping_failure_occurred", "remapped_rows/remapped_row_failure"),
    ),
    (
        "pcie_generation_current",
        whole,
        ("pci/gpu_link_info/pcie_generation/current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
    ),
    (
        "pcie_generation_max",
        whole,
        ("pci/gpu_link_info/pcie_generation/max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    ),
    (
        "pcie_width_current",
        whole,
        ("pci/gpu_link_info/link_width/current", "pci/pci_gpu_link_info/link_widths/current_link_width"),
    ),
    (
        "pcie_width_max",
        whole,
        ("pci/gpu_link_info/link_width/max", "pci/pci_gpu_link_info/link_widths/max_link_width"),
    ),
    ("pcie_replay_counter", whole, ("pci/replays_since_reset", "pci/replay_counter")),
    ("graphics_clock_mhz", whole, ("clocks/graphics", "clocks/graphics_clock")),
    ("graphics_clock_max_mhz", whole, ("max_clocks/graphics", "max_clocks/graphics_clock")),
    (
        "graphics_clock_application_mhz",
        whole,
        ("applications_clocks/graphics", "applications_clocks/graphics_clock"),
    ),
    (
        "graphics_clock_application_default_mhz",
        whole,
        ("default_applications_clocks/graphics", "default_applications_clocks/graphics_clock"),
    ),
    ("memory_clock_mhz", whole, ("clocks/memory", "clocks/mem_clock")),
    ("memory_clock_max_mhz", whole, ("max_clocks/memory", "max_clocks/mem_clock")),
    ("memory_clock_application_mhz", whole, ("applications_clocks/memory", "applications_clocks/mem_clock")),
    ("fabric_state", lowered, ("fabric/state",)),
    ("fabric_status", lowered, ("fabric/status",)),
)
"""Facts of a GPU, how to read each, and where it may stand: as nvidia-smi labels it now and before, text and XML."""

EVENT_REASONS = {
    "idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
    "display_clocks_setting": 0x100,
}
"""NVML's bits, https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html."""


def gpu_record(report: Reading, index: int | None) -> dict[str, Any]:
    """A GPU of onecat.facts from its report. report: its value is the PCI address that stands over it."""
    gpu: dict[str, Any] = {"index": index, "pci_address": _address(report)}
    for name, read, paths in FIELDS:
        found = next(
            (value for path in paths if (at := report.find(path)) and (value := read(at.value)) is not None), None
        )
        if found is not None:
            gpu[name] = found
    gpu.update(_ecc_errors(report))
    gpu.update(_retired_pages(report))
    gpu["event_reasons"] = _event_reasons(report)
    if gpu.get("mig_enabled"):
        gpu["mig_devices"] = _mig_devices(report)
    gpu.update(_processes(report))
    gpu["error"] = _error(report)
    return {key: value for key, value in gpu.items() if value is not None}


def _address(report: Reading) -> str | None:
    places = [report.find(path) for path in ("pci/bus_id", "pci/pci_bus_id")]
    stated = [each.value for each in places if each and known(each.value)]
    return pci_address(report.value) or pci_address(stated[0] if stated else None)


def _ecc_errors(report: Reading) -> dict[str, int]:
    """Errors by kind and period. Volta and older sum them as Single Bit and Double Bit, later ones count by memory."""
    counts: dict[str, int] = {}
    for period in ("volatile", "aggregate"):
        errors = report.find(f"ecc_errors/{period}")
        for each in errors.below if errors else ():
            total = each.find("total")
            number = whole(total.value if total else each.value)
            if number is None or "threshold" in each.label:
                continue
            if each.label == "double_bit" or "uncorrectable" in each.label:
                kind = "uncorrected"
            elif each.label == "single_bit" or "correctable" in each.label:
                kind = "corrected"
            else:
                continue
            name = f"ecc_{kind}_{period}"
            counts[name] = counts.get(name, 0) + number
    return counts


def _retired_pages(report: Reading) -> dict[str, int]:
    paths = (
        ("retired_pages/single_bit_ecc", "retired_pages/multiple_single_bit_retirement/retired_count"),
        ("retired_pages/double_bit_ecc", "retired_pages/double_bit_retirement/retired_count"),
    )
    numbers = [whole(at.value) for pair in paths for path in pair if (at := report.find(path))]
    stated = [number for number in numbers if number is not None]
    return {"retired_pages": sum(stated)} if stated else {}


def _event_reasons(report: Reading) -> int | None:
    bits: int | None = None
    for kind in ("event", "throttle"):
        at = report.find(f"clocks_{kind}_reasons")
        for each in at.everything() if at else ():
            label = each.label.removeprefix(f"clocks_{kind}_reason_").removeprefix(f"clocks_{kind}_reasons_")
            bit, active = EVENT_REASONS.get(label.removeprefix("gpu_")), enabled(each.value)
            if bit is not None and active is not None:
                bits = (bits or 0) | (bit if active else 0)
    return bits


def _mig_devices(report: Reading) -> int:
    listed = report.find("mig_devices")
    return sum(each.label == "mig_device" for each in [*report.below, *(listed.below if listed else [])])


def _processes(report: Reading) -> dict[str, Any]:
    at = report.find("processes")
    if at is None or (at.value and at.value.strip().lower() not in ("none", "")):
        return {}
    processes: list[dict[str, Any]] = []
    computing: list[int] = []
    for group in _process_groups(at):
        pid = whole(group.get("process_id") or group.get("pid"))
        if pid is None:
            continue
        memory = group.get("used_gpu_memory") or group.get("used_memory")
        name = known(group.get("name") or group.get("process_name"))
        processes.append({"pid": pid, "name": name, "memory": size(memory)})
        if "C" in group.get("type", "C"):
            computing.append(pid)
    return {"processes": processes, "process_ids": sorted(set(computing))}


def _process_groups(at: Reading) -> Iterator[dict[str, str]]:
    """The labels and values of each process: elements of their own in XML, one after the other in text."""
    group: dict[str, str] = {}
    for each in at.everything():
        if each.label in ("process_id", "process_info") and group:
            yield group
            group = {}
        if each.value is not None:
            group[each.label] = each.value.strip()
    if group:
        yield group


_VITAL = ("fb_memory_usage/total", "utilization/gpu", "utilization/gpu_util", "performance_state", "product_name")


def _error(report: Reading) -> str | None:
    """Why a listed GPU does not answer: nvidia-smi then puts the error in the place of its readings."""
    for each in report.everything():
        value = (each.value or "").strip("[] ")
        if value.lower() in ("gpu is lost", "gpu requires reset"):
            return value
    vital = [at.value for path in _VITAL if (at := report.find(path))]
    unknown = [value for value in vital if value and value.strip("[] ").lower() in ("unknown error", "err!")]
    return unknown[0].strip("[] ") if len(unknown) >= 2 else None
