"""A dump of NVML calls about one GPU: an object of function names and what pynvml returned, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer
from onecat.probe.importers.text import pci_address, whole

Read = Callable[[Any], Any]


def _text(value: Any) -> str | None:
    """A returned text; calls that failed are dumped as "ERR ..."."""
    if not isinstance(value, str) or value.startswith("ERR ") or not value:
        return None
    match = re.fullmatch(r"b'([^']{0,200})'", value)
    return match.group(1) if match else value


def _number(value: Any) -> int | None:
    return whole(_text(value)) if re.fullmatch(r"-?[0-9]{1,18}", _text(value) or "") else None


def _numbers(value: Any) -> list[int]:
    return [int(each) for each in re.findall(r"[0-9]{1,18}", _text(value) or "")]


def _flag(value: Any) -> bool | None:
    number = _number(value)
    return None if number is None else bool(number)


def _watts(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number / 1000


def _item(position: int, of: Callable[[int], Any] = int) -> Read:
    """One of several returned numbers."""
    return lambda value: of(numbers[position]) if len(numbers := _numbers(value)) > position else None


def _member(name: str) -> Read:
    """A member of a returned structure."""
    return lambda value: _number(value.get(name)) if isinstance(value, Mapping) else None


def _capability(value: Any) -> str | None:
    numbers = _numbers(value)
    return f"{numbers[0]}.{numbers[1]}" if len(numbers) == 2 else None


FIELDS: tuple[tuple[str, str, Read], ...] = (
    ("nvmlDeviceGetIndex", "index", _number),
    ("nvmlDeviceGetName", "name", _text),
    ("nvmlDeviceGetUUID", "uuid", _text),
    (
        "nvmlDeviceGetPciInfo",
        "pci_address",
        lambda value: pci_address(_text(value.get("busId"))) if isinstance(value, Mapping) else None,
    ),
    ("nvmlDeviceGetCudaComputeCapability", "compute_capability", _capability),
    # The first version of this call counts the driver's reserve as used, so that only the total is of use.
    ("nvmlDeviceGetMemoryInfo", "memory_total", _member("total")),
    ("nvmlDeviceGetBAR1MemoryInfo", "bar1_total", _member("bar1Total")),
    ("nvmlDeviceGetBAR1MemoryInfo", "bar1_used", _member("bar1Used")),
    ("nvmlDeviceGetPerformanceState", "performance_state", _number),
    ("nvmlDeviceGetUtilizationRates", "utilization_percent", _member("gpu")),
    ("nvmlDeviceGetPowerUsage", "power_draw_watts", _watts),
    ("nvmlDeviceGetPowerManagementLimit", "power_limit_watts", _watts),
    ("nvmlDeviceGetPowerManagementDefaultLimit", "power_limit_default_watts", _watts),
    ("nvmlDeviceGetPersistenceMode", "persistence_mode", _flag),
    ("nvmlDeviceGetMigMode", "mig_enabled", _item(0, bool)),
    ("nvmlDeviceGetGspFirmwareVersion", "gsp_firmware_version", _text),
    ("nvmlDeviceGetEccMode", "ecc_enabled", _item(0, bool)),
    ("nvmlDeviceGetEccMode", "ecc_enabled_pending", _item(1, bool)),
    ("nvmlDeviceGetRemappedRows", "remapped_rows_correctable", _item(0)),
    ("nvmlDeviceGetRemappedRows", "remapped_rows_uncorrectable", _item(1)),
    ("nvmlDeviceGetRemappedRows", "remapped_rows_pending", _item(2, bool)),
    ("nvmlDeviceGetRemappedRows", "remapped_rows_failure", _item(3, bool)),
    ("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_generation_current", _number),
    ("nvmlDeviceGetMaxPcieLinkGeneration", "pcie_generation_max", _number),
    ("nvmlDeviceGetCurrPcieLinkWidth", "pcie_width_current", _number),
    ("nvmlDeviceGetMaxPcieLinkWidth", "pcie_width_max", _number),
    ("nvmlDeviceGetPcieReplayCounter", "pcie_replay_counter", _number),
    ("nvmlDeviceGetCurrentClocksEventReasons", "event_reasons", _number),
)
"""Calls, the fact of a GPU that each gives, and how its dumped value is read."""


@importer("NVML calls", recognises=lambda text: '"nvmlDeviceGetName"' in text, hints=("nvml",))
def nvml_calls(capture: Capture) -> Part:
    try:
        document = json.loads(capture.text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, Mapping):
        return {}
    gpu: dict[str, Any] = {}
    for call, name, read in FIELDS:
        value = read(document.get(call))
        if value is not None:
            gpu[name] = value
    nvidia: dict[str, Any] = {"gpus": [gpu]} if gpu else {}
    driver, cuda = (
        _text(document.get("nvmlSystemGetDriverVersion")),
        _number(document.get("nvmlSystemGetCudaDriverVersion")),
    )
    if driver:
        nvidia["driver_version"] = driver
    if cuda:
        nvidia["cuda_driver_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    return {"nvidia": nvidia} if nvidia else {}
