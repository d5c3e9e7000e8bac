"""SELinux as getenforce and sestatus tell it, labels of device files, and the device files themselves (`ls -lZ`)."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer

_MODE = re.compile(r"^(Enforcing|Permissive)[ \t]*$", re.MULTILINE)
_STATUS = re.compile(r"^SELinux status: {1,40}(enabled|disabled)", re.MULTILINE)
_CURRENT = re.compile(r"^Current mode: {1,40}(enforcing|permissive)", re.MULTILINE)
_POLICY = re.compile(r"^(?:Loaded policy name|Policy from config file): {1,40}(\S{1,40})", re.MULTILINE)
_BOOLEAN = re.compile(r"^((?:container_|virt_sandbox_|virt_use_)\w{1,60}) --> (on|off)", re.MULTILINE)
_LABEL = re.compile(
    r"(\w{1,40}:\w{1,40}:\w{1,60}_t:s[0-9]\S{0,40}) .{0,60}(/dev/(?:nvidia|davinci)[\w-]{0,40})$", re.MULTILINE
)
_DEVICE = re.compile(r"^c[rw-]{8}[rwt-][.+]? .{1,120}? (/dev/nvidia[\w-]{0,40})$", re.MULTILINE)


def _is_selinux(text: str) -> bool:
    return any(each.search(text) for each in (_MODE, _STATUS, _BOOLEAN, _LABEL)) or text.strip() == "Disabled"


@importer("SELinux", recognises=_is_selinux, sections=("getenforce", "sestatus"), hints=("selinux", "getenforce"))
def selinux(capture: Capture) -> Part:
    """Mode, policy, booleans about containers (getsebool -a), labels (ls -Z); nothing without the mode."""
    status, current, alone = (each.search(capture.text) for each in (_STATUS, _CURRENT, _MODE))
    mode = (alone or current).group(1).lower() if (alone or current) else None  # type: ignore[union-attr]
    if mode is None and ((status and status.group(1) == "disabled") or capture.text.strip() == "Disabled"):
        mode = "disabled"
    policy = _POLICY.search(capture.text)
    facts: dict[str, Any] = {
        "mode": mode,
        "policy": policy.group(1) if policy else None,
        "booleans": [[name, value == "on"] for name, value in _BOOLEAN.findall(capture.text)],
        "device_labels": [[path, label] for label, path in _LABEL.findall(capture.text)],
    }
    stated = {key: value for key, value in facts.items() if value}
    return {"selinux": stated} if stated else {}


@importer("device files", recognises=lambda text: _DEVICE.search(text) is not None, hints=("/dev/nvidia",))
def device_files(capture: Capture) -> Part:
    """NVIDIA's device files, from `ls -l /dev/nvidia*`."""
    return {"nvidia": {"device_files": sorted(set(_DEVICE.findall(capture.text)))}}
