"""When a reload of systemd would take the GPUs from containers, read from what Docker tells of them."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.deploy.daemon_reload import has_gpus, links_missing, loses_gpus, loss, refusal
from onecat.errors import ExitCode

# `docker info` of Ubuntu 22.04 and of a daemon with "exec-opts": ["native.cgroupdriver=cgroupfs"], as far as it counts.
SYSTEMD: dict[str, Any] = {"CgroupDriver": "systemd", "CgroupVersion": "2", "DefaultRuntime": "runc"}
CGROUPFS = {**SYSTEMD, "CgroupDriver": "cgroupfs"}
DEVICES = ["null", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "sda"]


def container(
    requests: list[dict[str, Any]] | None = None,
    runtime: str = "runc",
    env: tuple[str, ...] = (),
    devices: tuple[str, ...] = (),
) -> dict[str, Any]:
    """What `docker inspect` shows of a running container; DeviceRequests and Devices are null where there are none."""
    rows = [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in devices]
    return {
        "Name": "/llm",
        "State": {"Status": "running"},
        "Config": {"Env": ["PATH=/usr/bin", *env], "Labels": {}},
        "HostConfig": {"Runtime": runtime, "DeviceRequests": requests, "Devices": rows or None, "Privileged": False},
    }


ALL_GPUS = {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
TWO_GPUS = {"Driver": "nvidia", "Count": 0, "DeviceIDs": ["0", "1"], "Capabilities": [["compute", "gpu"]]}
CDI = {"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=all"], "Capabilities": None, "Options": None}
BY_GPUS = container([ALL_GPUS])
BY_RUNTIME = container(runtime="nvidia", env=("NVIDIA_VISIBLE_DEVICES=all",))
BY_CDI = container([CDI])
BY_CDI_OF_THE_RUNTIME = container(runtime="nvidia", env=("NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0",))
ONE_BY_ONE = container([ALL_GPUS], devices=("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"))
WITHOUT = container(runtime="nvidia", env=("NVIDIA_VISIBLE_DEVICES=void",))


@pytest.mark.parametrize("each", [BY_GPUS, container([TWO_GPUS]), BY_RUNTIME])
def test_a_container_that_got_its_gpus_from_the_hook_loses_them(each: dict[str, Any]) -> None:
    assert has_gpus(each)
    assert loses_gpus(SYSTEMD, each, missing_links=True)
    assert not loses_gpus(SYSTEMD, each, missing_links=False)
    assert not loses_gpus(CGROUPFS, each, missing_links=True)


@pytest.mark.parametrize("each", [BY_CDI, BY_CDI_OF_THE_RUNTIME, ONE_BY_ONE])
def test_a_container_whose_devices_docker_knows_keeps_them(each: dict[str, Any]) -> None:
    assert has_gpus(each)
    assert not loses_gpus(SYSTEMD, each, missing_links=True)


@pytest.mark.parametrize("each", [container(), WITHOUT, container(runtime="nvidia")])
def test_a_container_without_gpus_has_none_to_lose(each: dict[str, Any]) -> None:
    assert not has_gpus(each)
    assert not loses_gpus(SYSTEMD, each, missing_links=True)


@pytest.mark.parametrize(
    ("links", "missing"),
    [
        ({"195:0", "195:1", "195:255", "1:3"}, False),
        ({"195:0", "195:255"}, True),
        ({"195:0", "195:1"}, True),
        (set(), True),
    ],
)
def test_each_device_file_of_a_gpu_needs_its_link(links: set[str], missing: bool) -> None:
    assert links_missing(DEVICES, links) is missing


def test_a_host_without_gpus_lacks_no_link() -> None:
    assert not links_missing(["null", "sda", "nvidia-caps"], set())


def test_a_refusal_names_the_containers_and_each_way_out() -> None:
    error = refusal(["llm", "other"], "gpu1")
    assert error.found == "systemctl daemon-reload would take the GPUs from llm and other"
    told = "\n".join(error.next_steps)
    ways = ("create-dev-char-symlinks --create-all", "nvidia.com/gpu=all", "cgroupfs", "--allow-daemon-reload")
    assert all(way in told for way in ways)
    assert error.code == ExitCode.ROLLED_BACK


def test_lost_gpus_need_a_person_and_a_restart_of_each_deployment() -> None:
    error = loss([("onecat-a-0001", "a"), ("onecat-a-0002", "a"), ("onecat-b-0004", "b")], "gpu1")
    assert error.found == "onecat-a-0001, onecat-a-0002 and onecat-b-0004 lost the GPUs at systemctl daemon-reload"
    assert error.next_steps == ("onecat restart a", "onecat restart b")
    assert error.code == ExitCode.NEEDS_PERSON
