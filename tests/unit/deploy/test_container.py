"""How the container is made, and how Docker's words are read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat import __version__
from onecat.deploy.container import (
    ContainerServer,
    Daemon,
    activity_of,
    container_user,
    docker_error,
    has_selinux,
    home_identity,
    labels,
    state_of,
)
from onecat.deploy.container_rendering import hands_out, numa_node
from onecat.deploy.container_spec import ContainerSpec, create_body, run_argv
from onecat.deploy.releases import Release
from onecat.deploy.server import Activity
from onecat.errors import ExitCode, OnecatError
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
GUARDED = replace(
    SPEC, guard_directory="/r/guard", state_directory="/r/state", image_entrypoint=("/usr/local/bin/onecat-entrypoint",)
)


def host_config(spec: ContainerSpec) -> dict[str, Any]:
    config: dict[str, Any] = create_body(spec)["HostConfig"]
    return config


def words_after(option: str, spec: ContainerSpec) -> list[str]:
    argv = run_argv(spec, "docker")
    return [argv[at + 1] for at, word in enumerate(argv) if word == option]


def test_the_container_keeps_no_right_it_does_not_need() -> None:
    body = create_body(SPEC)
    assert (body["Image"], body["Cmd"], body["User"]) == (SPEC.image, list(SPEC.command), "1000:1000")
    assert body["Env"] == ["HOME=/tmp", "USER=onecat", "XDG_CACHE_HOME=/tmp/cache", "VLLM_CPU_KVCACHE_SPACE=1"]
    assert body["Labels"] == {"io.onecat.deployment": "demo"}
    assert host_config(SPEC) == {
        "RestartPolicy": {"Name": "no"},
        "Init": True,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777"},
        "PortBindings": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]},
        "ShmSize": 2**30,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "16m", "max-file": "4"}},
        "Mounts": [
            {"Target": "/model", "Source": "/models/tiny", "Type": "bind", "ReadOnly": True},
            {"Target": "/run/secrets/api_key", "Source": "/home/me/secrets/api_key", "Type": "bind", "ReadOnly": True},
        ],
    }


def test_gpus_are_asked_for_only_when_planned() -> None:
    (request,) = host_config(replace(SPEC, gpus=2))["DeviceRequests"]
    assert (request["Count"], request["Capabilities"]) == (2, [["gpu"]])
    assert words_after("--gpus", replace(SPEC, gpus=2)) == ["2"]
    assert "DeviceRequests" not in host_config(SPEC) and words_after("--gpus", SPEC) == []


def test_chosen_gpus_are_named_one_by_one() -> None:
    chosen = replace(SPEC, gpus=2, gpu_ids=("GPU-1", "GPU-2"))
    (request,) = host_config(chosen)["DeviceRequests"]
    assert (request["Count"], request["DeviceIDs"]) == (0, ["GPU-1", "GPU-2"])
    assert words_after("--gpus", chosen) == ['"device=GPU-1,GPU-2"']
    by_cdi = replace(chosen, cdi=True)
    assert host_config(by_cdi)["DeviceRequests"] == [
        {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"]}
    ]
    assert words_after("--device", by_cdi) == ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"]
    assert words_after("--gpus", by_cdi) == []


def test_cdi_is_for_daemons_that_know_each_of_the_gpus() -> None:
    daemon = Daemon(selinux=False, cdi_devices=frozenset({"nvidia.com/gpu=GPU-1", "nvidia.com/gpu=0"}))
    assert hands_out(daemon, ("GPU-1",)) and hands_out(daemon, ("0",))
    assert not hands_out(daemon, ("GPU-1", "GPU-2"))
    assert not hands_out(daemon, ()), "a number of GPUs, whichever they are"


def test_devices_and_files_of_the_hosts_driver_are_handed_over_one_by_one() -> None:
    spec = replace(
        SPEC,
        devices=("/dev/davinci0", "/dev/davinci_manager"),
        groups=(1000,),
        mounts=(("/usr/local/dcmi", "/usr/local/dcmi"),),
    )
    config = host_config(spec)
    assert [(each["PathOnHost"], each["PathInContainer"], each["CgroupPermissions"]) for each in config["Devices"]] == [
        ("/dev/davinci0", "/dev/davinci0", "rw"),
        ("/dev/davinci_manager", "/dev/davinci_manager", "rw"),
    ]
    assert config["GroupAdd"] == ["1000"]
    mount = {"Target": "/usr/local/dcmi", "Source": "/usr/local/dcmi", "Type": "bind", "ReadOnly": True}
    assert config["Mounts"][-1] == mount
    assert not {"Privileged", "DeviceRequests"} & config.keys()
    assert words_after("--device", spec) == [f"{each}:{each}:rw" for each in spec.devices]
    assert words_after("--group-add", spec) == ["1000"]
    assert "type=bind,source=/usr/local/dcmi,target=/usr/local/dcmi,readonly" in words_after("--mount", spec)


def test_limits_are_given_where_onecat_yaml_sets_them() -> None:
    limited = replace(SPEC, memory_bytes=2**33, cpus=1.5, cpuset_cpus="0-3", cpuset_mems="0", locked_memory=True)
    config = host_config(limited)
    assert (config["Memory"], config["NanoCpus"]) == (2**33, 1_500_000_000)
    assert (config["CpusetCpus"], config["CpusetMems"]) == ("0-3", "0")
    assert config["Ulimits"] == [{"Name": "memlock", "Soft": -1, "Hard": -1}]
    assert words_after("--cpus", limited) == ["1.5"]


def test_the_hosts_ipc_takes_the_place_of_shared_memory_of_ones_own() -> None:
    shared = replace(SPEC, host_ipc=True)
    assert host_config(shared)["IpcMode"] == "host" and "ShmSize" not in host_config(shared)
    assert words_after("--ipc", shared) == ["host"] and words_after("--shm-size", shared) == []


def test_a_numa_node_is_its_cpus_and_its_memory(tmp_path: Path) -> None:
    cpus, memory = numa_node(LocalMachine(tmp_path), 0)
    assert cpus == Path("/sys/devices/system/node/node0/cpulist").read_text().strip() and memory == "0"
    with pytest.raises(OnecatError, match="no NUMA node 63 with CPUs"):
        numa_node(LocalMachine(tmp_path), 63)


def test_a_written_container_is_read_back_as_it_was(tmp_path: Path) -> None:
    spec = replace(
        SPEC,
        devices=("/dev/davinci0",),
        groups=(1000,),
        mounts=(("/usr/local/dcmi", "/usr/local/dcmi"),),
        gpu_ids=("GPU-1",),
        cpus=0.5,
    )
    assert ContainerServer.prepare(LocalMachine(tmp_path), str(tmp_path), spec, None)._spec() == spec


def test_without_a_key_nothing_is_mounted_for_it() -> None:
    mounts = host_config(replace(SPEC, secret_file=None))["Mounts"]
    assert [mount["Target"] for mount in mounts] == ["/model"]


def test_the_guard_starts_what_the_image_would_have_started() -> None:
    words = [
        *("/run/onecat/guard/guard.pyz", "--max-crashes=10", "--stable-seconds=600", "--backoff-seconds=1"),
        *("--backoff-max-seconds=30", "--", "/usr/local/bin/onecat-entrypoint", *SPEC.command),
    ]
    assert (create_body(GUARDED)["Entrypoint"], create_body(GUARDED)["Cmd"]) == (["python3"], words)
    assert run_argv(GUARDED, "docker")[-len(words) - 3 :] == ["--entrypoint", "python3", SPEC.image, *words]
    guard, state = host_config(GUARDED)["Mounts"][-2:]
    assert (guard["Source"], guard["Target"], guard["ReadOnly"]) == ("/r/guard", "/run/onecat/guard", True)
    assert state == {"Type": "bind", "Source": "/r/state", "Target": "/run/onecat/state"}


def test_compiled_kernels_are_kept_in_a_volume_that_says_whose_it_is() -> None:
    labels = {"io.onecat.home": "0123456789ab", "io.onecat.image": "sha256:00"}
    kept = replace(SPEC, cache_volume="onecat-cache-0", cache_directory="/var/cache/onecat", cache_labels=labels)
    *_, mount = host_config(kept)["Mounts"]
    assert mount == {
        "Target": "/var/cache/onecat",
        "Source": "onecat-cache-0",
        "Type": "volume",
        "VolumeOptions": {"Labels": labels, "DriverConfig": {}},
    }
    wanted = "type=volume,source=onecat-cache-0,target=/var/cache/onecat"
    argv = run_argv(kept, "docker")
    assert f"{wanted},volume-label=io.onecat.home=0123456789ab,volume-label=io.onecat.image=sha256:00" in argv
    assert not [word for word in words_after("--mount", SPEC) if "volume" in word]


def test_where_selinux_confines_containers_this_one_alone_is_let_out() -> None:
    confined = replace(SPEC, selinux=True)
    assert host_config(confined)["SecurityOpt"] == ["no-new-privileges", "label=disable"]
    assert words_after("--security-opt", confined) == ["no-new-privileges", "label=disable"]
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
    release = Release("demo", 3, "/r", "container", "cpu", "m", "127.0.0.1", 8000, "", False, "0123", "")
    told = labels(release, "vllm-cpu 0.27.1", identity)
    assert (told["io.onecat.home"], told["io.onecat.release"], told["io.onecat.plan"]) == (identity, "3", "0123")
    assert (told["io.onecat.engine"], told["io.onecat.version"]) == ("vllm-cpu 0.27.1", __version__)


def test_a_mount_with_a_comma_is_quoted() -> None:
    argv = run_argv(replace(SPEC, model_directory='/models/a,"b"'), "docker")
    assert 'type=bind,"source=/models/a,""b""",target=/model,readonly' in argv


@pytest.mark.parametrize(
    ("operator", "owner", "user"),
    [((1000, 1000), (0, 0), (1000, 1000)), ((0, 0), (1001, 1002), (1001, 1002)), ((0, 0), (0, 0), (65534, 65534))],
)
def test_the_server_is_never_root(operator: tuple[int, int], owner: tuple[int, int], user: tuple[int, int]) -> None:
    assert container_user(operator, owner) == user


def inspected(status: str, code: int = 0, policy: str = "unless-stopped", **state: Any) -> dict[str, Any]:
    return {
        "HostConfig": {"RestartPolicy": {"Name": policy, "MaximumRetryCount": 0}},
        "State": {
            "Status": status,
            "ExitCode": code,
            "Pid": 42 if status == "running" else 0,
            "StartedAt": "2026-11-29T16:00:00.123456789Z",
            "FinishedAt": "0001-01-01T00:00:00Z" if status == "running" else "2026-11-29T16:01:00Z",
            "OOMKilled": False,
            **state,
        },
    }


def told(state: str, crashes: int = 0) -> dict[str, Any]:
    last = {"code": 137, "text": "exited with status 137", "oom_kills": 0, "at": "then", "ran_seconds": 3.0}
    return {
        "state": state,
        "started_at": "2026-11-29T16:00:05.000Z",
        "restarts": crashes,
        "crashes_in_a_row": crashes,
        "last_exit": last if crashes else None,
        "next_start_at": "soon" if state == "backing-off" else None,
    }


@pytest.mark.parametrize(
    ("document", "guard", "condition"),
    [
        (inspected("created"), None, "starting"),
        (inspected("running"), None, "running"),
        (inspected("running"), told("running", 3), "running"),
        (inspected("running"), told("stopping"), "running"),
        (inspected("running"), told("backing-off", 3), "backing-off"),
        (inspected("restarting", 137), told("backing-off", 3), "backing-off"),
        (inspected("running"), told("keeps-crashing", 10), "keeps-crashing"),
        (inspected("exited", 1, policy="no"), told("exited"), "exited"),
        (inspected("exited", 0), told("stopped"), "stopped"),
        (inspected("exited", 137), told("running"), "stopped"),
    ],
)
def test_the_condition_of_a_container(document: dict[str, Any], guard: dict[str, Any] | None, condition: str) -> None:
    assert state_of(document, guard).condition == condition


def test_a_server_that_waits_for_its_next_start_has_no_process_of_its_own() -> None:
    state = state_of(inspected("running"), told("backing-off", 3))
    assert (state.pid, state.crashes_in_a_row, state.next_start_at) == (None, 3, "soon")
    assert state.last_exit == "exited with status 137 at then"


def test_a_server_that_docker_has_stopped_has_not_crashed() -> None:
    state = state_of(inspected("exited", 0, policy="no"), told("stopped", 1))
    assert (state.last_exit or "").startswith("was stopped from outside, by docker stop or by the Docker daemon's")


def test_a_container_killed_for_memory_says_so() -> None:
    state = state_of(inspected("exited", 137, OOMKilled=True), None)
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
