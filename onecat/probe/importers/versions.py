"""What programs say of their version: nvidia-ctk, nvidia-container-cli, nvcc, nginx, docker; and `docker version`."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer

_TOOLKIT = re.compile(
    r"^(?:NVIDIA Container (?:Toolkit CLI|Runtime Hook) version|cli-version:) ([0-9][\w.~+-]{1,40})",
    re.MULTILINE,
)
_TOOLS = (
    ("nvcc", re.compile(r"Cuda compilation tools, release [0-9.]{1,8}, V([0-9][0-9.]{2,20})")),
    ("nginx", re.compile(r"^nginx version: [\w-]{1,20}/([0-9][0-9.]{1,20})", re.MULTILINE)),
    ("docker", re.compile(r"^Docker version ([0-9][\w.+~-]{1,40}), build ", re.MULTILINE)),
)
_BLOCK = re.compile(r"^(Client|Server): ?.{0,80}\n((?:[ \t]+.{0,200}\n?){1,60})", re.MULTILINE)
_VALUE = re.compile(r"^\s{1,8}(Version|API version): {1,20}(\S{1,60})", re.MULTILINE)


@importer(
    "nvidia-ctk --version", recognises=lambda text: _TOOLKIT.search(text) is not None, hints=("nvidia-ctk", "toolkit")
)
def container_toolkit(capture: Capture) -> Part:
    match = _TOOLKIT.search(capture.text)
    return {"container_toolkit": {"version": match.group(1)}} if match else {}


@importer(
    "version of nvcc, nginx or docker",
    recognises=lambda text: any(pattern.search(text) for _, pattern in _TOOLS),
    hints=("nvcc", "nginx", "version"),
)
def tools(capture: Capture) -> Part:
    found = [(name, pattern.search(capture.text)) for name, pattern in _TOOLS]
    return {"tools": {"versions": [[name, match.group(1)] for name, match in found if match]}}


def _is_docker_version(text: str) -> bool:
    return "API version:" in text and "Go version:" in text


@importer("docker version", recognises=_is_docker_version, hints=("docker",))
def docker_version(capture: Capture) -> Part:
    docker: dict[str, Any] = {}
    for side, body in _BLOCK.findall(capture.text):
        values: dict[str, str] = {}
        for label, value in _VALUE.findall(body):
            values.setdefault(label, value)
        if side == "Client" and "Version" in values:
            docker.setdefault("client_version", values["Version"])
        elif side == "Server" and "Version" in values:
            docker.update(state="reachable", server_version=values["Version"])
            docker.update({"api_version": values["API version"]} if "API version" in values else {})
    return {"docker": docker} if docker else {}
