"""What brings a container's server back, and what does not: crashes, a restarted dockerd, a rebooted host."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from onecat import deploy
from onecat.deploy import processes
from onecat.errors import ExitCode, OnecatError
from onecat.paths import Home
from tests.testbed import docker_daemon as docker_daemons
from tests.testbed.deployments import SmallDeployment
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.test_up_container import ask, boxed, ours, server_image

__all__ = ["boxed", "server_image"]


def server_process(client: Any, container: str = "onecat-demo-0001") -> int | None:
    """The host's number of the server's process in a container, not of its entry point or its guard."""
    state = client.api.inspect_container(container)["State"]
    if state["Status"] != "running":
        return None
    for pid in processes.descendants(state["Pid"]):
        entry = processes.entry(pid)
        # Its engine process has the same words, and another parent.
        if entry and "/server.py" in command_line(pid) and "/entrypoint.sh" in command_line(entry.parent):
            return pid
    return None


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill_server(client: Any, before: int | None = None, container: str = "onecat-demo-0001") -> int:
    """Kill the server as soon as there is another one than `before`."""
    limit = time.monotonic() + 20
    while (pid := server_process(client, container)) in (None, before):
        assert time.monotonic() < limit, client.api.inspect_container(container)["State"]
        time.sleep(0.02)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_killed_server_is_started_again(boxed: SmallDeployment, docker_client: Any) -> None:
    release = boxed.up()
    kill_server(docker_client)
    found = boxed.wait_for(lambda found: found.state == "serving" and found.restarts == 1)
    assert (found.crashes_in_a_row, found.last_exit is not None) == (1, True)
    assert ask(release.endpoint).status_code == 200


def test_killed_ten_times_in_a_row_it_keeps_crashing_and_says_why(boxed: SmallDeployment, docker_client: Any) -> None:
    boxed.up()
    killed = None
    for crashes in range(1, 11):
        killed = kill_server(docker_client, killed)
        # Until the container has ended, what the server left behind may look like the next one.
        boxed.wait_for(lambda found, crashes=crashes: found.crashes_in_a_row == crashes)
    found = boxed.wait_for(lambda found: found.state == "keeps-crashing")
    assert (found.crashes_in_a_row, found.restarts, found.pid) == (10, 9, None)
    assert "killed by SIGKILL" in (found.cause or "")
    assert "exited with status 137" in (found.cause or "")
    assert "onecat up" in found.next_steps
    (container,) = ours(docker_client)
    container.restart(timeout=5)
    boxed.wait_for(lambda found: found.state == "keeps-crashing")
    assert server_process(docker_client) is None
    assert boxed.up().number == 2
    assert (boxed.status().state, boxed.status().crashes_in_a_row) == ("serving", 0)


def test_a_crash_after_a_long_stable_run_is_the_first_one_again(boxed: SmallDeployment, docker_client: Any) -> None:
    boxed.up(restart={"max_crashes": 2, "stable_seconds": 3, "backoff_seconds": 0.05, "backoff_max_seconds": 0.1})
    killed = kill_server(docker_client)
    boxed.wait_for(lambda found: found.state == "serving" and found.restarts == 1)
    time.sleep(3.1)
    kill_server(docker_client, killed)
    found = boxed.wait_for(lambda found: found.state == "serving" and found.restarts == 2)
    assert found.crashes_in_a_row == 1


def test_a_container_killed_whole_is_brought_back_and_counted(boxed: SmallDeployment, docker_client: Any) -> None:
    boxed.up()
    (container,) = ours(docker_client)
    os.kill(container.attrs["State"]["Pid"], signal.SIGKILL)
    found = boxed.wait_for(lambda found: found.state == "serving" and found.restarts == 1)
    assert found.crashes_in_a_row == 1
    assert (found.last_exit or "").startswith("was killed with its whole container at ")


@dataclass
class Fleet:
    """Deployments on a dockerd of their own."""

    daemon: DockerDaemon
    client: Any
    small: SmallDeployment
    port: Callable[[], int]

    def up(self, name: str, *words: str, **changes: Any) -> deploy.Release:
        boxed = replace(self.small, port=self.port())
        return boxed.up(*words, name=name, proxy={"kind": "none"}, **changes)

    def status(self, name: str) -> deploy.DeploymentStatus:
        return deploy.status(deploy.find_deployment(self.small.machine, name))

    def wait_for(self, name: str, state: str) -> deploy.DeploymentStatus:
        limit = time.monotonic() + 30
        while (found := self.status(name)).state != state:
            assert time.monotonic() < limit, found
            time.sleep(0.05)
        return found


@pytest.fixture(scope="module")
def lone_daemon(
    docker_client: Any, server_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[DockerDaemon, Any]]:
    """A dockerd that may be stopped, with the server's image, and a client of it."""
    import docker

    with contextlib.ExitStack() as stack:
        data_root = tmp_path_factory.mktemp("lone") / "docker"
        daemon = stack.enter_context(docker_daemons.running_docker_daemon(data_root))
        client = stack.enter_context(contextlib.closing(docker.DockerClient(base_url=daemon.host, timeout=120)))
        client.api.load_image(docker_client.images.get(server_image).save(chunk_size=2**20, named=True))
        yield daemon, client


@pytest.fixture
def fleet(
    onecat_home: Path, tiny_model: Path, free_port: Callable[[], int], lone_daemon: Any, server_image: str
) -> Iterator[Fleet]:
    daemon, client = lone_daemon
    for path in tiny_model.iterdir():
        path.chmod(path.stat().st_mode | stat.S_IROTH)
    home = Home(onecat_home, onecat_home / "cache")
    small = SmallDeployment(home, tiny_model, 0, 0, daemon.host, server_image)
    yield Fleet(daemon, client, small, free_port)
    for store in deploy.deployments(small.machine):
        deploy.down(store)
    assert client.containers.list(all=True) == []


def test_what_comes_back_after_dockerd_and_after_the_host(fleet: Fleet) -> None:
    fleet.up("serves")
    fleet.up("given-up", restart={"max_crashes": 1})
    fleet.up("put-away")
    kill_server(fleet.client, container="onecat-given-up-0001")
    fleet.wait_for("given-up", "keeps-crashing")
    fleet.client.containers.get("onecat-put-away-0001").stop()
    assert fleet.wait_for("put-away", "stopped").crashes_in_a_row == 0

    def check() -> deploy.DeploymentStatus:
        found = fleet.wait_for("serves", "serving")
        assert fleet.status("given-up").state == "keeps-crashing"
        assert server_process(fleet.client, "onecat-given-up-0001") is None
        assert fleet.status("put-away").state == "stopped"
        return found

    docker_daemons.stop(fleet.daemon)
    with pytest.raises(OnecatError) as raised:
        fleet.status("serves")
    assert raised.value.code == ExitCode.UNREACHABLE
    docker_daemons.start(fleet.daemon)
    found = check()
    assert (found.restarts, found.crashes_in_a_row) == (0, 0), "a restart of dockerd is no crash"

    docker_daemons.lose_power(fleet.daemon)
    docker_daemons.start(fleet.daemon)
    check()


def test_dockerd_restarted_in_the_middle_of_up(fleet: Fleet) -> None:
    raised: list[OnecatError] = []

    def up() -> None:
        try:
            fleet.up("demo", "--chatty", "60")
        except OnecatError as error:
            raised.append(error)

    operator = threading.Thread(target=up)
    operator.start()
    limit = time.monotonic() + 20
    while not any(each.startswith("starting release") for each in fleet.small.reported[:-1]):  # what its log tells
        assert time.monotonic() < limit, fleet.small.reported
        time.sleep(0.05)
    docker_daemons.stop(fleet.daemon)
    operator.join(30)
    docker_daemons.start(fleet.daemon)
    (error,) = raised
    assert error.code == ExitCode.NEEDS_PERSON
    assert "was stopped from outside, by docker stop or by the Docker daemon's own end" in error.found
    assert "release 1 could not be stopped: there is no Docker engine at this socket" in error.found
    assert "onecat up" in error.next_steps
    assert fleet.up("demo").number == 2
    assert fleet.status("demo").state == "serving"
    assert [each.name for each in fleet.client.containers.list(all=True)] == ["onecat-demo-0002"]
