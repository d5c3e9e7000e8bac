"""What Docker says of a container, beside what it was made from."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from onecat.deploy.container import RESTART_POLICY
from onecat.deploy.container_spec import ContainerSpec, create_body
from onecat.deploy.drift import container_differences

SPEC = ContainerSpec(
    name="onecat-demo-0001",
    image="onecat/demo:1",
    command=("/models/tiny", "--host", "0.0.0.0"),  # noqa: S104 - inside the container
    env={"HF_HUB_OFFLINE": "1"},
    model_directory="/srv/tiny",
    model_mount="/models/tiny",
    host="127.0.0.1",
    port=8000,
    shm_bytes=64 * 2**20,
    gpus=1,
    gpu_ids=("GPU-a",),
    user="1000:1000",
    labels={"io.onecat.deployment": "demo"},
)


@pytest.fixture
def inspected() -> dict[str, Any]:
    """What the engine says of the container that was made: more than was asked for, in its own forms."""
    body = create_body(SPEC)
    host = body.pop("HostConfig")
    host |= {"RestartPolicy": dict(RESTART_POLICY), "Memory": 0, "NanoCpus": 0, "CpusetCpus": "", "PidsLimit": None}
    host |= {"Privileged": False, "Binds": None, "Runtime": "runc"}
    body["Env"] = [*body["Env"], "PATH=/usr/bin"]
    body["Labels"] = {**body["Labels"], "org.opencontainers.image.title": "x"}
    return copy.deepcopy({"Config": body, "HostConfig": host, "Image": "sha256:aa", "State": {"Paused": False}})


def test_a_container_as_it_was_made_shows_no_difference(inspected: dict[str, Any]) -> None:
    assert container_differences(inspected, SPEC, "sha256:aa") == []


@pytest.mark.parametrize(
    ("place", "value", "lines"),
    [
        (("HostConfig", "Memory"), 2**30, ["- HostConfig.Memory: 0", "+ HostConfig.Memory: 1073741824"]),
        (("HostConfig", "CpusetCpus"), "0-3", ['- HostConfig.CpusetCpus: ""', '+ HostConfig.CpusetCpus: "0-3"']),
        (
            ("HostConfig", "RestartPolicy"),
            {"Name": "no", "MaximumRetryCount": 0},
            ['- HostConfig.RestartPolicy.Name: "unless-stopped"', '+ HostConfig.RestartPolicy.Name: "no"'],
        ),
        (
            ("HostConfig", "ReadonlyRootfs"),
            False,
            ["- HostConfig.ReadonlyRootfs: true", "+ HostConfig.ReadonlyRootfs: false"],
        ),
        (("Config", "User"), "0:0", ['- Config.User: "1000:1000"', '+ Config.User: "0:0"']),
        (("Image",), "sha256:bb", ["- Image: sha256:aa", "+ Image: sha256:bb"]),
        (("State", "Paused"), True, ["- State.Paused: false", "+ State.Paused: true"]),
    ],
)
def test_what_was_changed_by_hand_is_told(
    inspected: dict[str, Any], place: tuple[str, ...], value: object, lines: list[str]
) -> None:
    target = inspected
    for name in place[:-1]:
        target = target[name]
    target[place[-1]] = value
    assert container_differences(inspected, SPEC, "sha256:aa") == lines


def test_a_variable_of_ours_that_is_missing_is_told(inspected: dict[str, Any]) -> None:
    inspected["Config"]["Env"].remove("HF_HUB_OFFLINE=1")
    (line,) = container_differences(inspected, SPEC, None)
    assert line.startswith("- Config.Env[")
    assert line.endswith(': "HF_HUB_OFFLINE=1"')
