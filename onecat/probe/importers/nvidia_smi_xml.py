"""`nvidia-smi -q -x`: everything of each GPU as XML (nvsmi_device_v6 to v13), also when it is cut off or broken.

No XML parser reads it: real files are cut in the middle, hold unescaped text of command lines, or stand between other
output, and no entity is ever expanded.
"""

from __future__ import annotations

import html
import re
from typing import Any

from onecat.probe.importers.readings import Reading, gpu_record, plain_label
from onecat.probe.importers.registry import Capture, Part, holds, importer
from onecat.probe.importers.text import known, whole

_TAG = re.compile(r"<(/?)([A-Za-z_][\w.-]{0,80})((?:\s[^<>]*)?)>")
_DEEPEST = 12
_LONGEST_VALUE = 4096


@importer("nvidia-smi -q -x", recognises=holds("<nvidia_smi_log", "<gpu id="), hints=("nvidia-smi", "xml"))
def nvidia_smi_xml(capture: Capture) -> Part:
    """Driver, CUDA and GPUs."""
    nvidia: dict[str, Any] = {}
    for log in _logs(capture.text):
        for name, label in (("driver_version", "driver_version"), ("cuda_driver_version", "cuda_version")):
            stated = log.find(label)
            if stated and known(stated.value):
                nvidia.setdefault(name, known(stated.value))
        reports = [each for each in log.below if each.label == "gpu"]
        attached = log.find("attached_gpus")
        some = attached is not None and whole(attached.value) not in (None, len(reports))
        for index, report in enumerate(reports):
            minor = report.find("minor_number")
            number = (whole(minor.value) if minor else None) if some else index
            nvidia.setdefault("gpus", []).append(gpu_record(report, number))
    return {"nvidia": nvidia} if nvidia else {}


def _logs(text: str) -> list[Reading]:
    """Each report in a text; one whose beginning is missing counts from its first GPU."""
    logs: list[Reading] = []
    stack: list[Reading] = []
    at = 0
    for tag in _TAG.finditer(text):
        closing, name, rest = tag.groups()
        if stack and closing and not stack[-1].below:
            stack[-1].value = html.unescape(text[at : min(tag.start(), at + _LONGEST_VALUE)]).strip()
        at = tag.end()
        label = plain_label(name)
        if closing:
            depth = next((i for i in range(len(stack) - 1, -1, -1) if stack[i].label == label), None)
            if depth is not None:
                del stack[depth:]
        elif label == "nvidia_smi_log":
            stack = [Reading(label)]
            logs.append(stack[0])
        elif label == "gpu" and "id=" in rest:
            # A GPU is never below another one: what was open before it was cut off.
            stack = stack[:1] or [Reading("nvidia_smi_log")]
            if not logs or logs[-1] is not stack[0]:
                logs.append(stack[0])
            identity = re.search(r'id="([^"]{1,80})"', rest)
            _open(stack, Reading(label, identity.group(1) if identity else None), rest)
        elif stack:
            _open(stack, Reading(label), rest)
    return logs


def _open(stack: list[Reading], reading: Reading, rest: str) -> None:
    stack[-1].below.append(reading)
    if not rest.endswith("/") and len(stack) < _DEEPEST:
        stack.append(reading)
