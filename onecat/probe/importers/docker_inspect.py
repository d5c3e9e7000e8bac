"""`docker inspect` of containers and images. https://docs.docker.com/reference/api/engine/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from onecat.probe.importers.registry import Capture, Part, holds, importer

_LARGEST = 16 * 1024 * 1024


@importer("docker inspect", recognises=holds('"HostConfig"', '"RepoTags"'), hints=("docker", "inspect", "hostconfig"))
def docker_inspect(capture: Capture) -> Part:
    containers: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for document in _documents(capture.text):
        if isinstance(document.get("HostConfig"), dict) and isinstance(document.get("Name"), str):
            containers.append(_container(document))
        elif isinstance(document.get("RepoTags"), list) and isinstance(document.get("Id"), str):
            images.append(_image(document))
    docker: dict[str, Any] = {"state": "reachable"}
    if containers:
        docker["containers"] = containers
    if images:
        docker["images"] = images
    return {"docker": docker} if len(docker) > 1 else {}


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """The objects in the first lists or objects of JSON that begin a line."""
    if len(text) > _LARGEST:
        return
    decoder = json.JSONDecoder()
    end = 0
    tried = 0
    for match in re.finditer(r"^[\[{]", text, re.MULTILINE):
        if match.start() < end or tried >= 20:
            continue
        tried += 1
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))


def _get(document: Any, *path: str) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _container(document: dict[str, Any]) -> dict[str, Any]:
    host = document["HostConfig"]
    own_shm = _get(host, "ShmSize")
    is_own = _word(_get(host, "IpcMode")) in (None, "private", "shareable")
    devices = [_word(_get(each, "PathOnHost")) for each in _get(host, "Devices") or () if isinstance(each, dict)]
    ports = _get(host, "PortBindings")
    container = {
        "name": document["Name"].lstrip("/"),
        "image": _word(_get(document, "Config", "Image")),
        "state": _word(_get(document, "State", "Status")),
        "restart_policy": _word(_get(host, "RestartPolicy", "Name")),
        "shm_size": own_shm if type(own_shm) is int and is_own else None,
        "ipc_mode": _word(_get(host, "IpcMode")),
        "network_mode": _word(_get(host, "NetworkMode")),
        "runtime": _word(_get(host, "Runtime")),
        "gpus": _wants_gpus(document, devices),
        "privileged": _get(host, "Privileged") if isinstance(_get(host, "Privileged"), bool) else None,
        "security_options": _texts(_get(host, "SecurityOpt")),
        "ports": sorted(set(_host_ports(ports))),
        "device_paths": [path for path in devices if path],
    }
    return {key: value for key, value in container.items() if value is not None and value != []}


def _wants_gpus(document: dict[str, Any], devices: list[str | None]) -> bool:
    requests = _get(document, "HostConfig", "DeviceRequests")
    wanted = [each for each in requests if isinstance(each, dict)] if isinstance(requests, list) else []
    variables = _texts(_get(document, "Config", "Env"))
    visible = next((each.partition("=")[2] for each in variables if each.startswith("NVIDIA_VISIBLE_DEVICES=")), "")
    by_runtime = _get(document, "HostConfig", "Runtime") == "nvidia" and visible not in ("", "void", "none")
    return bool(wanted) or by_runtime or any(path and path.startswith("/dev/nvidia") for path in devices)


def _host_ports(bindings: Any) -> Iterator[int]:
    for each in bindings.values() if isinstance(bindings, dict) else ():
        for binding in each if isinstance(each, list) else ():
            port = _get(binding, "HostPort")
            if isinstance(port, str) and re.fullmatch(r"[0-9]{1,5}", port):
                yield int(port)


def _image(document: dict[str, Any]) -> dict[str, Any]:
    labels = _get(document, "Config", "Labels")
    size = document.get("Size")
    image = {
        "id": document["Id"],
        "tags": _texts(document["RepoTags"]),
        "size": size if type(size) is int else None,
        "labels": [[key, value] for key, value in labels.items() if isinstance(value, str)]
        if isinstance(labels, dict)
        else None,
    }
    return {key: value for key, value in image.items() if value is not None}
