"""`docker info` as text and as JSON, and what docker prints when its daemon does not answer.

https://docs.docker.com/reference/cli/docker/system/info/.
"""

from __future__ import annotations

import json
import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, holds, importer
from onecat.probe.importers.text import known, short_lines, size, whole

_UNREACHABLE = re.compile(
    r"Cannot connect to the Docker daemon at (\S{1,200}?)\. Is the docker daemon running"
    r"|failed to connect to the docker API at (\S{1,200}?)[;,]"
)
_FORBIDDEN = re.compile(
    r"permission denied while trying to connect to the [Dd]ocker (?:daemon socket|API) at (\S{1,200}?):? "
)


@importer(
    "docker info",
    recognises=holds(
        "Server Version:",
        "Docker Root Dir:",
        '"DockerRootDir"',
        "the Docker daemon",
        "the docker daemon",
        "the docker API",
        "the Docker daemon socket",
    ),
    sections=("docker info", "docker info --format {{json .}}"),
    hints=("docker", "containers", "storage driver"),
)
def docker_info(capture: Capture) -> Part:
    """The daemon, and what it says of its machine."""
    if capture.exit_code == 127:
        return {"docker": {"state": "absent", "error": "no program docker"}}
    document = _json_document(capture.text)
    if document is not None:
        return _from_json(document)
    values = _labels(capture.text)
    docker: dict[str, Any] = {}
    if "Server Version" in values or "Docker Root Dir" in values:
        docker = {"state": "reachable", **_from_text(values)}
    else:
        for state, pattern in (("unreachable", _UNREACHABLE), ("forbidden", _FORBIDDEN)):
            match = pattern.search(capture.text)
            if match:
                socket = next((group for group in match.groups() if group), None)
                docker = {"state": state, "error": match.group().rstrip(": "), "socket": socket}
    if not docker:
        return {}
    part: Part = {"docker": {key: value for key, value in docker.items() if value is not None}}
    if docker["state"] == "reachable":
        part.update(
            _machine(_one(values, "Operating System"), _one(values, "Kernel Version"), _one(values, "Architecture"))
        )
        cpus, memory = whole(_one(values, "CPUs")), size(_one(values, "Total Memory"))
        part.update({"cpu": {"logical_cores": cpus}} if cpus else {})
        part.update({"memory": {"total": memory}} if memory else {})
    return part


def _labels(text: str) -> dict[str, list[str]]:
    """The values of each label: what stands behind it, and the deeper lines below it."""
    values: dict[str, list[str]] = {}
    open_label: tuple[int, str] | None = None
    for line in short_lines(text):
        stripped = line.strip()
        if not stripped:
            continue
        indent = len(line) - len(line.lstrip())
        match = re.fullmatch(r"([A-Za-z][\w /-]{1,40}):(?: (.*))?", stripped)
        if open_label and indent > open_label[0]:
            values[open_label[1]].append(stripped)
            if match and open_label[1] in ("Server", "Client"):
                open_label = None
            else:
                continue
        if match and match.group(1) not in values:
            values[match.group(1)] = [match.group(2).strip()] if match.group(2) else []
        open_label = (
            (indent, match.group(1)) if match and match.group(1) not in ("Server", "Client", "Context") else None
        )
    return values


def _one(values: dict[str, list[str]], label: str) -> str | None:
    return known(next(iter(values.get(label, [])), None))


def _from_text(values: dict[str, list[str]]) -> dict[str, Any]:
    plugins = " ".join(values.get("Plugins", []))
    compose = re.search(r"compose: .{0,80}?(?:\(Docker Inc\., |Version: {1,4})v?([0-9][\w.+-]{1,30})", plugins)
    return {
        "server_version": _one(values, "Server Version"),
        "client_version": _one(values, "Version"),
        "compose_version": compose.group(1) if compose else None,
        "storage_driver": _one(values, "Storage Driver"),
        "root_directory": _one(values, "Docker Root Dir"),
        "cgroup_driver": _one(values, "Cgroup Driver"),
        "cgroup_version": _one(values, "Cgroup Version"),
        "runtimes": sorted((_one(values, "Runtimes") or "").split()) or None,
        "default_runtime": _one(values, "Default Runtime"),
        "security_options": _security_options(values.get("Security Options", [])) or None,
        "cdi_devices": _cdi_devices(values) or None,
        "logging_driver": _one(values, "Logging Driver"),
    }


def _security_options(lines: list[str]) -> list[str]:
    """In the API's spelling: name=seccomp,profile=builtin."""
    options: list[str] = []
    for line in lines:
        label, separator, value = line.partition(":")
        if separator and options and label == label.capitalize():
            options[-1] += f",{label.lower()}={value.strip()}"
        elif not separator:
            options += [f"name={word}" for word in line.split()]
    return options


def _cdi_devices(values: dict[str, list[str]]) -> list[str]:
    return [
        line.partition("cdi:")[2].strip() for line in values.get("Discovered Devices", []) if line.startswith("cdi:")
    ]


def _json_document(text: str) -> dict[str, Any] | None:
    at = text.find("{")
    if '"DockerRootDir"' not in text or at < 0:
        return None
    try:
        document, _ = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _text(document: dict[str, Any], *path: str) -> str | None:
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> list[str] | None:
    return [each for each in value if isinstance(each, str)] or None if isinstance(value, list) else None


def _from_json(document: dict[str, Any]) -> Part:
    runtimes = document.get("Runtimes")
    devices = document.get("DiscoveredDevices")
    errors = _texts(document.get("ServerErrors")) or []
    if not _text(document, "ServerVersion") and errors:
        refused = "permission denied" in errors[0]
        return {"docker": {"state": "forbidden" if refused else "unreachable", "error": errors[0]}}
    docker = {
        "state": "reachable",
        "server_version": _text(document, "ServerVersion"),
        "client_version": _text(document, "ClientInfo", "Version"),
        "storage_driver": _text(document, "Driver"),
        "root_directory": _text(document, "DockerRootDir"),
        "cgroup_driver": _text(document, "CgroupDriver"),
        "cgroup_version": _text(document, "CgroupVersion"),
        "runtimes": sorted(map(str, runtimes)) if isinstance(runtimes, dict) else None,
        "default_runtime": _text(document, "DefaultRuntime"),
        "security_options": _texts(document.get("SecurityOptions")),
        "cdi_devices": [each["ID"] for each in devices if isinstance(each, dict) and _text(each, "ID")]
        if isinstance(devices, list)
        else None,
        "logging_driver": _text(document, "LoggingDriver"),
    }
    part: Part = {"docker": {key: value for key, value in docker.items() if value is not None}}
    part.update(
        _machine(_text(document, "OperatingSystem"), _text(document, "KernelVersion"), _text(document, "Architecture"))
    )
    cores, memory = document.get("NCPU"), document.get("MemTotal")
    part.update({"cpu": {"logical_cores": cores}} if type(cores) is int and cores > 0 else {})
    part.update({"memory": {"total": memory}} if type(memory) is int and memory > 0 else {})
    return part


def _machine(name: str | None, kernel: str | None, architecture: str | None) -> Part:
    values = {"pretty_name": name, "kernel": kernel, "architecture": architecture}
    stated = {key: value for key, value in values.items() if value}
    return {"operating_system": stated} if stated else {}
