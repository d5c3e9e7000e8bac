"""The short listings of nvidia-smi: `-L`, `nvlink -s`, `nvlink -e`, `--version`, and what it prints when it fails."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, holds, importer
from onecat.probe.importers.text import decimal, known, pci_address, short_lines

_GPU = re.compile(r"GPU ([0-9]{1,3}): (.{0,200}?) ?\(UUID: (.{1,80}?)\)")
_SPEED = re.compile(r"Link ([0-9]{1,2}): ([0-9.]{1,10}) GB/s")
_STATE = re.compile(r"Link ([0-9]{1,2}): <?(inactive|[Nn]ot [Aa]ctive|[Dd]isabled)>?")
_ERRORS = re.compile(r"Link ([0-9]{1,2}): (Replay|CRC(?: FLIT| Data)?) Errors?(?: Counter)?: ?([0-9]{1,15})", re.I)
_FAILURES = (
    re.compile(r"Failed to initialize NVML: (.{1,120})"),
    re.compile(r"(NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver)"),
    re.compile(r"(NVIDIA-SMI couldn't find libnvidia-ml\.so library in your system)"),
)
_LOST = re.compile(
    r"Unable to determine the device handle for (?:gpu |GPU ?)(?:([0-9]{1,3}): ?)?"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{5,8})?: ?(.{1,160})"
)


@importer("nvidia-smi -L", recognises=lambda text: _GPU.search(text) is not None, hints=("gpu", "uuid"))
def nvidia_smi_list(capture: Capture) -> Part:
    """GPUs with name and UUID, and the NVLinks below them."""
    gpus: dict[int, dict[str, Any]] = {}
    links: dict[int, dict[str, Any]] = {}
    for line in short_lines(capture.text):
        stripped = line.strip()
        match = _GPU.match(stripped)
        if match:
            index, name, uuid = int(match.group(1)), known(match.group(2)), known(match.group(3))
            gpu = gpus.setdefault(index, {"index": index})
            gpu.update({key: value for key, value in (("name", name), ("uuid", uuid)) if value and key not in gpu})
            links = gpu.setdefault("nvlinks", {})
        elif stripped.startswith("Link "):
            _read_link(stripped, links)
    for gpu in gpus.values():
        gpu["nvlinks"] = list(gpu["nvlinks"].values())
        if not gpu["nvlinks"]:
            del gpu["nvlinks"]
    return {"nvidia": {"gpus": list(gpus.values())}} if gpus else {}


def _read_link(line: str, links: dict[int, dict[str, Any]]) -> None:
    speed, state, errors = (pattern.match(line) for pattern in (_SPEED, _STATE, _ERRORS))
    match = speed or state or errors
    if match is None:
        return
    link = links.setdefault(int(match.group(1)), {"link": int(match.group(1))})
    if speed:
        link.update(active=True, gigabytes_per_second=decimal(speed.group(2)))
    elif state:
        link["active"] = False
    elif errors:
        name = "replay_errors" if errors.group(2).lower() == "replay" else "crc_errors"
        link[name] = link.get(name, 0) + int(errors.group(3))


@importer(
    "nvidia-smi --version",
    recognises=holds("DRIVER version  ", "NVRM version:"),
    sections=("/proc/driver/nvidia/version",),
    hints=("nvrm", "driver version"),
)
def driver_version(capture: Capture) -> Part:
    """The driver's version as nvidia-smi, or the kernel module (/proc/driver/nvidia/version), states it."""
    nvidia: dict[str, Any] = {}
    for name, pattern in (
        ("driver_version", r"^DRIVER version +: ([0-9.]{3,20})"),
        ("cuda_driver_version", r"^CUDA (?:UMD )?Version +: ([0-9.]{3,10})"),
    ):
        match = re.search(pattern, capture.text, re.MULTILINE)
        if match:
            nvidia[name] = match.group(1)
    module = re.search(r"NVRM version: ([^\n]{1,200})", capture.text)
    version = re.search(r"\b([0-9]{2,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)\b", module.group(1)) if module else None
    if module and version:
        nvidia.update(
            kernel_module_version=version.group(1), kernel_module_open="Open Kernel Module" in module.group(1)
        )
    return {"nvidia": nvidia} if nvidia else {}


@importer(
    "failure of nvidia-smi",
    recognises=holds(
        "Failed to initialize NVML",
        "NVIDIA-SMI has failed",
        "NVIDIA-SMI couldn't",
        "Unable to determine the device handle",
    ),
    sections=("nvidia-smi -q",),
    hints=("nvml", "nvidia-smi"),
)
def nvidia_smi_failure(capture: Capture) -> Part:
    """Why NVML does not work as a whole, or which GPU does not answer."""
    if capture.exit_code == 127:
        return {"notes": [{"source": "nvml", "kind": "absent", "text": "nvidia-smi is not there"}]}
    nvidia: dict[str, Any] = {}
    for pattern in _FAILURES:
        match = pattern.search(capture.text)
        if match:
            nvidia["nvml_error"] = match.group(1).strip()
            break
    library = re.search(r"NVML library version: ([0-9][0-9.]{2,20})", capture.text)
    if library:
        nvidia["library_version"] = library.group(1)
    gpus = [_lost_gpu(match) for match in _LOST.finditer(capture.text)]
    if gpus:
        nvidia["gpus"] = gpus
    return {"nvidia": nvidia} if nvidia else {}


def _lost_gpu(match: re.Match[str]) -> dict[str, Any]:
    index, address, error = match.groups()
    gpu = {"index": int(index) if index else None, "pci_address": pci_address(address), "error": error.strip()}
    return {key: value for key, value in gpu.items() if value is not None}
