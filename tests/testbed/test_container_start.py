"""Slow starts in a container: only silence is a failure, for onecat and for Docker's health check alike."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from onecat.deploy.container_spec import ContainerSpec, create_body, health_command
from tests.testbed.deployments import SmallDeployment
from tests.testbed.test_container_restart import kill_server
from tests.testbed.test_up_container import boxed, ours, server_image
from tests.testbed.waiting import wait_until

__all__ = ["boxed", "server_image"]


def health(client: Any) -> str:
    return str(client.api.inspect_container("onecat-demo-0001")["State"]["Health"]["Status"])


def test_a_start_that_tells_of_itself_may_take_longer_than_every_limit(
    boxed: SmallDeployment, docker_client: Any
) -> None:
    seen: set[str] = set()
    ready = threading.Event()

    def watch() -> None:
        while not ready.wait(0.2):
            seen.update(health(docker_client) for _ in ours(docker_client))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        # Docker would look for the first time after 10 s, and three times until 30 s.
        boxed.up("--chatty", "22", start={"silence_seconds": 5})
    finally:
        ready.set()
        watcher.join()
    assert seen <= {"starting", "healthy"}
    wait_until(lambda: health(docker_client) == "healthy")

    (container,) = ours(docker_client)
    before = container.attrs["State"]["StartedAt"]
    kill_server(docker_client)
    wait_until(lambda: docker_client.api.inspect_container(container.id)["State"]["StartedAt"] != before)
    assert health(docker_client) == "starting", "a container that has lived for a while is new after a crash"
    boxed.wait_for(lambda found: found.restarts == 1)


def test_a_silent_start_is_unhealthy_and_stays_so(docker_client: Any, server_image: str, tmp_path: Path) -> None:
    spec = ContainerSpec(
        name="onecat-test-silent",
        image=server_image,
        command=("/models/tiny", "--hang"),
        env={},
        model_directory=str(tmp_path),
        model_mount="/models/tiny",
        host="127.0.0.1",
        port=0,
        shm_bytes=2**26,
        gpus=0,
        user="65534:65534",
        silence_seconds=4,
    )
    identifier = docker_client.api.create_container_from_config(create_body(spec), spec.name)["Id"]
    container = docker_client.containers.get(identifier)
    try:
        container.start()
        for least, most in ((4, 60), (0, 4)):
            began = time.monotonic()
            assert container.exec_run(["sh", "-c", health_command(spec)]).exit_code == 1
            assert least <= time.monotonic() - began < most
    finally:
        container.remove(force=True)
