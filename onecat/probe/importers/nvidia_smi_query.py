"""`nvidia-smi -q`: everything of each GPU as text, in the spellings of drivers from 340 to 600."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.readings import Reading, gpu_record, plain_label
from onecat.probe.importers.registry import Capture, Part, importer
from onecat.probe.importers.text import known, short_lines, whole

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_HEAD = ("Driver Version", "CUDA Version", "Attached GPUs", "Timestamp", "KMD Version", "CUDA UMD Version")


def _is_query(text: str) -> bool:
    return "NVSMI LOG" in text or (
        "GPU 0" in text and re.search(rf"^ *{_GPU.pattern}\s*$", text, re.MULTILINE) is not None
    )


@importer("nvidia-smi -q", recognises=_is_query, hints=("nvidia-smi", "nvsmi", "product name"))
def nvidia_smi_query(capture: Capture) -> Part:
    """Driver, CUDA and GPUs. A report that is cut off gives what it still has."""
    head: dict[str, str] = {}
    reports: list[Reading] = []
    attached: list[int | None] = []
    stack: list[tuple[int, Reading]] = []
    for line in short_lines(capture.text):
        stripped = line.strip()
        if "NVSMI LOG" in line:
            stack = []
            attached.append(None)
            continue
        if not stripped:
            continue
        indent = len(line) - len(line.lstrip())
        gpu = _GPU.fullmatch(stripped)
        if gpu:
            reports.append(Reading("gpu", gpu.group(1)))
            stack = [(indent, reports[-1])]
            attached = attached or [None]
            continue
        label, separator, value = (each.strip() for each in stripped.partition(" : "))
        if not separator:
            label, value = stripped.removesuffix(":").strip(), ""
        if stack and indent <= stack[0][0]:
            stack = []
        if stack:
            while len(stack) > 1 and indent <= stack[-1][0]:
                stack.pop()
            one = Reading(plain_label(label), value if separator else None)
            stack[-1][1].below.append(one)
            stack.append((indent, one))
        elif separator and label in _HEAD:
            head.setdefault(label, value)
            if label == "Attached GPUs" and attached:
                attached[-1] = whole(value)
    gpus = _records(reports, attached[0] if len(attached) == 1 else None)
    nvidia: dict[str, Any] = {
        "driver_version": known(head.get("Driver Version") or head.get("KMD Version")),
        "cuda_driver_version": known(head.get("CUDA Version") or head.get("CUDA UMD Version")),
        "gpus": gpus,
    }
    nvidia = {key: value for key, value in nvidia.items() if value}
    return {"nvidia": nvidia} if nvidia else {}


def _records(reports: list[Reading], attached: int | None) -> list[dict[str, Any]]:
    """GPUs are listed in the order of their index, unless only some were asked for: then the minor number tells."""
    order = {address: index for index, address in enumerate(dict.fromkeys(report.value for report in reports))}
    some = attached is not None and attached != len(order)
    records = []
    for report in reports:
        minor = report.find("minor_number")
        index = (whole(minor.value) if minor else None) if some else order[report.value]
        records.append(gpu_record(report, index))
    return records
