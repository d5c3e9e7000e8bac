"""How the container is made, and how Docker's words are read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat.deploy.container import (
    ContainerServer,
    ContainerSpec,
    activity_of,
    container_user,
    create_arguments,
    docker_error,
    has_selinux,
    home_identity,
    labels,
    restart_policy,
    run_argv,
    state_of,
)
from onecat.deploy.server import Activity
from onecat.errors import ExitCode
from onecat.hosts import LocalMachine

SPEC = ContainerSpec(
    name="onecat-demo-0001",
    image="onecat/vllm-cpu:0.27.1",
    command=("/model", "--port", "8000"),
    env={"VLLM_CPU_KVCACHE_SPACE": "1"},
    model_directory="/models/tiny",
    model_mount="/model",
    host="127.0.0.1",
    port=8000,
    shm_bytes=2**30,
    gpus=0,
    user="1000:1000",
    max_crashes=10,
    secret_file="/home/me/secrets/api_key",
    labels={"io.onecat.deployment": "demo"},
)
ENVIRONMENT = {"HOME": "/tmp", "USER": "onecat", "XDG_CACHE_HOME": "/tmp/cache", "VLLM_CPU_KVCACHE_SPACE": "1"}


def test_the_container_keeps_no_right_it_does_not_need() -> None:
    assert create_arguments(SPEC) == {
        "image": "onecat/vllm-cpu:0.27.1",
        "command": ["/model", "--port", "8000"],
        "name": "onecat-demo-0001",
        "environment": ENVIRONMENT,
        "mounts": [
            {"Target": "/model", "Source": "/models/tiny", "Type": "bind", "ReadOnly": True},
            {"Target": "/run/secrets/api_key", "Source": "/home/me/secrets/api_key", "Type": "bind", "ReadOnly": True},
        ],
        "ports": {"8000/tcp": ("127.0.0.1", 8000)},
        "shm_size": 2**30,
        "user": "1000:1000",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "init": True,
        "read_only": True,
        "tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777"},
        "labels": {"io.onecat.deployment": "demo"},
        "log_config": {"Type": "json-file", "Config": {"max-size": "16m", "max-file": "4"}},
        "detach": True,
    }


def test_gpus_are_asked_for_only_when_planned() -> None:
    (request,) = create_arguments(replace(SPEC, gpus=2))["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (2, [["gpu"]])
    assert "device_requests" not in create_arguments(SPEC)


def test_devices_and_files_of_the_hosts_driver_are_handed_over_one_by_one() -> None:
    spec = replace(
        SPEC,
        devices=("/dev/davinci0", "/dev/davinci_manager"),
        groups=(1000,),
        mounts=(("/usr/local/dcmi", "/usr/local/dcmi"),),
    )
    arguments = create_arguments(spec)
    assert arguments["devices"] == ["/dev/davinci0:/dev/davinci0:rw", "/dev/davinci_manager:/dev/davinci_manager:rw"]
    assert arguments["group_add"] == ["1000"]
    mount = {"Target": "/usr/local/dcmi", "Source": "/usr/local/dcmi", "Type": "bind", "ReadOnly": True}
    assert arguments["mounts"][-1] == mount
    assert not {"privileged", "device_requests"} & arguments.keys()
    words = run_argv(spec, "docker")
    assert [words[n + 1] for n, word in enumerate(words) if word == "--device"] == arguments["devices"]
    assert words[words.index("--group-add") + 1] == "1000"
    assert "type=bind,source=/usr/local/dcmi,target=/usr/local/dcmi,readonly" in words


def test_a_written_container_is_read_back_as_it_was(tmp_path: Path) -> None:
    spec = replace(SPEC, devices=("/dev/davinci0",), groups=(1000,), mounts=(("/usr/local/dcmi", "/usr/local/dcmi"),))
    assert ContainerServer.prepare(LocalMachine(tmp_path), str(tmp_path), spec, None)._spec() == spec


def test_without_a_key_nothing_is_mounted_for_it() -> None:
    mounts = create_arguments(replace(SPEC, secret_file=None))["mounts"]
    assert [mount["Target"] for mount in mounts] == ["/model"]


def test_the_same_container_as_docker_run() -> None:
    assert run_argv(replace(SPEC, gpus=2), "/usr/bin/docker") == [
        *("/usr/bin/docker", "run", "--rm", "--name", "onecat-demo-0001", "--init", "--read-only"),
        *("--user", "1000:1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777", "--shm-size", "1073741824"),
        *("--publish", "127.0.0.1:8000:8000"),
        *("--mount", "type=bind,source=/models/tiny,target=/model,readonly"),
        *("--mount", "type=bind,source=/home/me/secrets/api_key,target=/run/secrets/api_key,readonly"),
        *("--gpus", "2"),
        *("--env", "HOME=/tmp", "--env", "USER=onecat", "--env", "XDG_CACHE_HOME=/tmp/cache"),
        *("--env", "VLLM_CPU_KVCACHE_SPACE=1", "--label", "io.onecat.deployment=demo"),
        *("onecat/vllm-cpu:0.27.1", "/model", "--port", "8000"),
    ]


def test_compiled_kernels_are_kept_in_a_volume_that_says_whose_it_is() -> None:
    labels = {"io.onecat.home": "0123456789ab", "io.onecat.image": "sha256:00"}
    kept = replace(SPEC, cache_volume="onecat-cache-0", cache_directory="/var/cache/onecat", cache_labels=labels)
    *_, mount = create_arguments(kept)["mounts"]
    assert mount == {
        "Target": "/var/cache/onecat",
        "Source": "onecat-cache-0",
        "Type": "volume",
        "ReadOnly": False,
        "VolumeOptions": {"Labels": labels},
    }
    wanted = "type=volume,source=onecat-cache-0,target=/var/cache/onecat"
    argv = run_argv(kept, "docker")
    assert f"{wanted},volume-label=io.onecat.home=0123456789ab,volume-label=io.onecat.image=sha256:00" in argv
    assert not [word for word in run_argv(SPEC, "docker") if "volume" in word]


def test_where_selinux_confines_containers_this_one_alone_is_let_out() -> None:
    confined = replace(SPEC, selinux=True)
    assert create_arguments(confined)["security_opt"] == ["no-new-privileges", "label=disable"]
    argv = run_argv(confined, "docker")
    assert argv[argv.index("label=disable") - 1] == "--security-opt"
    assert "label=disable" not in run_argv(SPEC, "docker")


@pytest.mark.parametrize(
    ("options", "confined"),
    [
        (["name=seccomp,profile=builtin", "name=selinux", "name=cgroupns"], True),
        (["name=apparmor", "name=seccomp,profile=builtin"], False),
        ([], False),
    ],
)
def test_docker_info_says_whether_selinux_confines_containers(options: list[str], confined: bool) -> None:
    assert has_selinux(options) is confined


def test_a_container_belongs_to_one_onecat_home(tmp_path: Path) -> None:
    identity = home_identity(LocalMachine(tmp_path / "a"))
    assert re.fullmatch("[0-9a-f]{12}", identity)
    assert home_identity(LocalMachine(tmp_path / "b")) != identity
    assert home_identity(LocalMachine(tmp_path / "a")) == identity
    assert labels("demo", 1, "cpu", "0123", identity)["io.onecat.home"] == identity


def test_a_mount_with_a_comma_is_quoted() -> None:
    argv = run_argv(replace(SPEC, model_directory='/models/a,"b"'), "docker")
    assert 'type=bind,"source=/models/a,""b""",target=/model,readonly' in argv


@pytest.mark.parametrize(("crashes", "name", "restarts"), [(10, "on-failure", 9), (2, "on-failure", 1), (1, "no", 0)])
def test_docker_counts_restarts_where_we_count_crashes(crashes: int, name: str, restarts: int) -> None:
    assert restart_policy(crashes) == {"Name": name, "MaximumRetryCount": restarts}


@pytest.mark.parametrize(
    ("operator", "owner", "user"),
    [((1000, 1000), (0, 0), (1000, 1000)), ((0, 0), (1001, 1002), (1001, 1002)), ((0, 0), (0, 0), (65534, 65534))],
)
def test_the_server_is_never_root(operator: tuple[int, int], owner: tuple[int, int], user: tuple[int, int]) -> None:
    assert container_user(operator, owner) == user


def inspected(status: str, code: int, restarts: int, policy: str = "on-failure", **state: Any) -> dict[str, Any]:
    return {
        "RestartCount": restarts,
        "HostConfig": {"RestartPolicy": {"Name": policy, "MaximumRetryCount": 9}},
        "State": {
            "Status": status,
            "ExitCode": code,
            "Pid": 42 if status == "running" else 0,
            "StartedAt": "2026-11-29T16:00:00.123456789Z",
            "FinishedAt": "0001-01-01T00:00:00Z" if restarts == 0 and status == "running" else "2026-11-29T16:01:00Z",
            "OOMKilled": False,
            **state,
        },
    }


@pytest.mark.parametrize(
    ("document", "condition"),
    [
        (inspected("created", 0, 0), "starting"),
        (inspected("running", 0, 0), "running"),
        (inspected("restarting", 137, 3), "backing-off"),
        (inspected("exited", 137, 9), "keeps-crashing"),
        (inspected("exited", 137, 3), "exited"),
        (inspected("exited", 1, 0, policy="no"), "exited"),
        (inspected("exited", 0, 9), "exited"),
    ],
)
def test_the_condition_of_a_container(document: dict[str, Any], condition: str) -> None:
    assert state_of(document, max_crashes=10).condition == condition


def test_a_container_killed_for_memory_says_so() -> None:
    state = state_of(inspected("exited", 137, 9, OOMKilled=True), max_crashes=10)
    assert state.last_exit == "exited with status 137, the kernel's OOM killer struck at 2026-11-29T16:01:00Z"


def test_activity_is_read_from_the_statistics() -> None:
    stats = {
        "cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000}},
        "blkio_stats": {"io_service_bytes_recursive": [{"op": "Read", "value": 7}, {"op": "Write", "value": 9}]},
    }
    assert activity_of(stats) == Activity(2.5, 7)
    assert activity_of({"cpu_stats": {}, "blkio_stats": {"io_service_bytes_recursive": None}}) == Activity(0.0, 0)


@pytest.mark.parametrize(
    ("text", "found", "code"),
    [
        (
            "Error while fetching server API version: ('Connection aborted.', PermissionError(13, 'Permission '))",
            "this user may not talk to the Docker engine",
            ExitCode.UNREACHABLE,
        ),
        (
            "Error while fetching server API version: ('Connection aborted.', ConnectionRefusedError(111, 'refused'))",
            "there is no Docker engine at this socket",
            ExitCode.UNREACHABLE,
        ),
        (
            "500 Server Error: failed to bind host port for 127.0.0.1:8000: address already in use",
            "port 8000 is in use",
            ExitCode.ROLLED_BACK,
        ),
        ("404 Client Error: No such image: x:y", "the image onecat/vllm-cpu:0.27.1 is not there", ExitCode.ROLLED_BACK),
        ("500 Server Error: something else", "Docker refused", ExitCode.ROLLED_BACK),
    ],
)
def test_docker_errors_in_one_sentence(text: str, found: str, code: ExitCode) -> None:
    error = docker_error(text, "unix:///nonexistent/docker.sock", SPEC)
    assert (error.found, error.code) == (found, code)
    assert error.next_steps
