"""The report of vLLM's and PyTorch's collect_env, old and new layout.

https://github.com/vllm-project/vllm/blob/main/vllm/collect_env.py,
https://github.com/pytorch/pytorch/blob/main/torch/utils/collect_env.py. What it embeds (the topology of nvidia-smi,
lscpu) is read by those forms' own importers.
"""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.environment import matching_variables
from onecat.probe.importers.registry import Capture, Part, holds, importer
from onecat.probe.importers.text import known, short_lines

_LABEL = re.compile(r"([A-Za-z][\w /.()-]{1,48}?) {0,40}: ?(.*)")
_GPU = re.compile(
    r"(?:GPU models and configuration *: *)?GPU ([0-9]{1,3}): (.{1,200}?)(?: \(UUID: (GPU-[\w-]{1,60})\))?"
)
_PACKAGE = re.compile(r"\[(?:pip3?|conda)\] ([A-Za-z0-9][\w.-]{0,80})(?:==|\s{1,40})([0-9][\w.+!-]{0,60})")
_PLAIN = (
    "OS",
    "PyTorch version",
    "CUDA used to build PyTorch",
    "vLLM Version",
    "Nvidia driver version",
    "Libc version",
)


@importer(
    "collect_env",
    recognises=holds(
        "PyTorch version",
        "CUDA used to build PyTorch",
        "GPU models and configuration",
        "vLLM Version",
        "Nvidia driver version",
    ),
    hints=("collect_env", "pytorch", "vllm"),
)
def collect_env(capture: Capture) -> Part:
    """System, GPUs, driver, and the engine's environment, which is named after the capture."""
    values: dict[str, str] = {}
    gpus: dict[int, dict[str, Any]] = {}
    packages: dict[str, str] = {}
    for line in short_lines(capture.text):
        stripped = line.strip()
        gpu = _GPU.fullmatch(stripped)
        if gpu:
            index, name, uuid = gpu.groups()
            found = known(name)
            gpus.setdefault(int(index), {"index": int(index), **({"name": found} if found else {})})
            if uuid:
                gpus[int(index)]["uuid"] = uuid
            continue
        package = _PACKAGE.match(stripped)
        if package:
            packages.setdefault(package.group(1), package.group(2))
            continue
        label = _LABEL.fullmatch(stripped)
        if label and label.group(1).strip() not in values:
            values[label.group(1).strip()] = label.group(2).strip()
    return _part(capture.name, values, list(gpus.values()), packages, matching_variables(capture.text))


def _part(
    name: str, values: dict[str, str], gpus: list[dict[str, Any]], packages: dict[str, str], variables: list[list[str]]
) -> Part:
    def get(*labels: str) -> str | None:
        return next((found for label in labels if (found := known(values.get(label))) and found != "None"), None)

    part: dict[str, Any] = {
        "operating_system": _operating_system(get),
        "nvidia": {"driver_version": _version(get("Nvidia driver version")), "gpus": gpus or None},
        "engines": [_engine(name, get, packages)],
        "environment": variables or None,
    }
    found: Part = _without_absent(part)
    return found


def _operating_system(get: Any) -> dict[str, Any]:
    system = get("OS")
    match = re.fullmatch(r"(.+?) \((x86_64|aarch64|arm64|ppc64le)\)", system or "")
    platform = re.match(r"Linux-(.+?)-(x86_64|aarch64|ppc64le)-with-", get("Python platform") or "")
    wsl = "microsoft" in (get("Python platform") or "").lower()
    return {
        "pretty_name": match.group(1) if match else system,
        "architecture": match.group(2) if match else (platform.group(2) if platform else None),
        "kernel": platform.group(1) if platform else None,
        "libc": (get("Libc version") or "").replace("glibc-", "glibc ") or None,
        "virtualization": "wsl" if wsl else None,
    }


def _engine(name: str, get: Any, packages: dict[str, str]) -> dict[str, Any]:
    available = get("Is CUDA available")
    python = re.match(r"([0-9]+\.[0-9]+\.[0-9]+)", get("Python version") or "")
    version = re.match(r"v?([0-9][\w.+]{1,40})", get("vLLM Version", "vLLM version") or "")
    return {
        "where": name,
        "torch_version": get("PyTorch version") or packages.get("torch"),
        "torch_cuda_version": _version(get("CUDA used to build PyTorch")),
        "compiler_version": _version(get("CUDA runtime version")),
        "cuda_available": {"True": True, "False": False}.get(available or ""),
        "engine_version": version.group(1) if version else packages.get("vllm"),
        "python_version": python.group(1) if python else None,
        "packages": [[key, value] for key, value in packages.items()] or None,
    }


def _version(text: str | None) -> str | None:
    match = re.search(r"[0-9]{1,4}(?:\.[0-9]{1,5}){1,3}", text or "")
    return match.group() if match else None


def _without_absent(value: Any) -> Any:
    """A record without what is absent, and without records in which nothing but their name is left."""
    if isinstance(value, dict):
        kept = {key: _without_absent(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each is not None and each != {} and each != []}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        kept_list = [_without_absent(each) for each in value]
        return [each for each in kept_list if set(each) - {"where"}]
    return value
