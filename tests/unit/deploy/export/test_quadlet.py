"""Quadlet's files; Podman's own generator reads them in tests/testbed/test_export.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onecat.deploy.export import Options
from onecat.errors import OnecatError
from tests.unit.deploy.export.examples import KEY, exported, request


def rows(what: Any, path: str = "onecat-chat.container") -> dict[str, list[str]]:
    """The values of each key, whatever its section."""
    found: dict[str, list[str]] = {}
    for line in exported("quadlet", what)[path].text.splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_the_server_keeps_no_right_it_does_not_need() -> None:
    found = rows(request("cpu", secrets=KEY))
    assert (found["ReadOnly"], found["DropCapability"], found["NoNewPrivileges"]) == (["true"], ["all"], ["true"])
    assert (found["User"], found["Group"], found["PublishPort"]) == (["10001"], ["10001"], ["127.0.0.1:8000:8000"])
    assert found["Secret"] == [
        "onecat-chat-api-key,type=mount,target=/run/secrets/api_key,uid=10001,gid=10001,mode=0400"
    ]
    assert "SecurityLabelDisable" not in found
    assert rows(request("cpu", Options(selinux=True)))["SecurityLabelDisable"] == ["true"]


def test_gpus_come_by_the_container_device_interface() -> None:
    assert rows(request("v100x2-pcie"))["AddDevice"] == ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]
    named = rows(request("v100x2-pcie", gpus=[1, "GPU-ab"]))
    assert named["AddDevice"] == ["nvidia.com/gpu=1", "nvidia.com/gpu=GPU-ab"]
    ascend = rows(request("ascend910b", Options(groups=(1000,))))
    assert "/dev/davinci0:/dev/davinci0:rw" in ascend["AddDevice"]
    assert "--group-add=1000" in ascend["PodmanArgs"]


def test_a_start_of_half_an_hour_is_no_failure() -> None:
    found = rows(request("cpu"))
    assert (found["TimeoutStartSec"], found["HealthStartPeriod"]) == (["infinity"], ["86400s"])
    command = json.loads(found["HealthCmd"][0])
    assert command[:2] == ["python3", "-c"] and "/health" in command[2]


def test_nginx_stops_before_the_server_and_reaches_it_at_an_address_that_stays() -> None:
    nginx = rows(request("cpu"), "onecat-chat-nginx.container")
    assert nginx["Network"] == ["host"] and "onecat-chat.service" in nginx["After"][0]
    assert nginx["PodmanArgs"] == ["--stop-signal=SIGQUIT --stop-timeout=300"]
    assert "AddCapability" not in nginx
    low = rows(request("cpu", proxy={"listen": "0.0.0.0:80"}), "onecat-chat-nginx.container")
    assert low["AddCapability"] == ["net_bind_service"]
    assert "server 127.0.0.1:8000" in exported("quadlet", request("cpu"))["nginx/site.conf"].text


@pytest.mark.parametrize("path", ["/models/a,b", '/models/"a"', "/models/a\\b", "/models/a\nb"])
def test_a_path_that_quadlet_cannot_say_is_refused(path: str) -> None:
    with pytest.raises(OnecatError, match="comma, quote or backslash|no place in a unit file"):
        rows(request("cpu", model={"path": path, "served_name": "m"}))
