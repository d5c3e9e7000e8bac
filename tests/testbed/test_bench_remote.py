"""Load sent by a container of the engine's image on a host over SSH, with that host's own Docker daemon."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onecat.errors import OnecatError
from onecat.experiments.loads.container import LABEL, ContainerConversation, container_body
from onecat.experiments.records import ApiKey, Arrivals, Endpoint, Workload
from onecat.experiments.targets import ContainerSender, Target, open_driver
from tests.processes import within
from tests.testbed import systemd_host as systemd_hosts
from tests.testbed.conftest import need_program
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.nginx_servers import running_server
from tests.testbed.ports import free_port
from tests.testbed.remote_hosts import RemoteHost, running_remote_host
from tests.testbed.served import Served

SMALL = Workload(requests=4, input_tokens=16, output_tokens=4)
ECHO = "import sys\nfor line in sys.stdin: print('heard', line, end='', flush=True); print('x', file=sys.stderr)"


@pytest.fixture(scope="module")
def remote_host(
    docker_client: Any, docker_daemon: DockerDaemon, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RemoteHost]:
    image = systemd_hosts.ensure_systemd_image(docker_client)
    program = need_program("docker", "docker.io")
    directory = tmp_path_factory.mktemp("remote")
    with running_remote_host(
        docker_client, docker_daemon, image, directory, free_port(), docker_program=program
    ) as host:
        yield host


def senders(docker_client: Any) -> list[Any]:
    return list(docker_client.containers.list(all=True, filters={"label": LABEL}))


@pytest.mark.engine
def test_a_container_on_a_host_sends_the_load(
    served: Served, cpu_image: str, docker_client: Any, remote_host: RemoteHost
) -> None:
    with contextlib.closing(remote_host.connect()) as machine, running_server("sk-0123456789abcdef") as address:
        endpoint = Endpoint("served", served.server, served.model, str(served.directory))
        target = Target(endpoint, {}, machine, ContainerSender(cpu_image, "65534:65534", None))
        with open_driver(target) as driver:
            (container,) = senders(docker_client)
            inspected = container.attrs
            assert inspected["Config"]["User"] == "65534:65534"
            host = inspected["HostConfig"]
            assert (host["ReadonlyRootfs"], host["CapDrop"], host["DeviceRequests"]) == (True, ["ALL"], None)
            assert host["NetworkMode"] == "host"
            assert [each["RW"] for each in inspected["Mounts"]] == [False]
            block = driver.run(endpoint, SMALL, Arrivals(concurrency=2), number=0)
            assert [(each.error, each.output_tokens) for each in block.requests] == [(None, 4)] * 4
            key = ApiKey("sk-0123456789abcdef")
            keyed = Endpoint("x", f"http://{address}", "tiny", str(served.directory), key=key)
            assert {each.error for each in driver.run(keyed, SMALL, Arrivals(2), number=1).requests} == {None}
            assert key.reveal() not in str(container.attrs)
            assert driver.describe()["where"] == machine.name
            assert "container" in driver.describe()["runtime"]
        assert senders(docker_client) == []


def test_the_container_goes_with_the_connection(
    docker_client: Any, remote_host: RemoteHost, base_image: str, tmp_path: Path
) -> None:
    body = container_body(
        base_image, ["python3", "-c", ECHO], user="65534:65534", tokenizers=[str(tmp_path)], label="x", selinux=False
    )
    machine = remote_host.connect()
    conversation = ContainerConversation(machine.docker_host(None), body, machine.name)
    conversation.send(b"one\ntwo\n")
    assert (conversation.line(20), conversation.line(20)) == (b"heard one", b"heard two")
    with pytest.raises(TimeoutError):
        conversation.line(0.2)
    long = b"y" * 300_000
    conversation.send(long + b"\n")
    assert conversation.line(20) == b"heard " + long
    assert within(10, lambda: conversation.errors.count(b"x\n") == 3 or conversation.line(0.1) is None)
    assert len(senders(docker_client)) == 1
    remote_host.cut()
    with pytest.raises(OnecatError):
        for _ in range(100):
            conversation.send(b"are you there?\n")
            if conversation.line(5) is None:
                raise OnecatError("it has ended")
            time.sleep(0.05)
    assert within(20, lambda: senders(docker_client) == [])
    machine.close()


def test_a_program_that_ends_by_itself(docker_client: Any, docker_daemon: DockerDaemon, base_image: str) -> None:
    body = container_body(
        base_image,
        ["python3", "-c", "raise SystemExit('no')"],
        user="65534:65534",
        tokenizers=(),
        label="x",
        selinux=False,
    )
    conversation = ContainerConversation(docker_daemon.host, body, "here")
    assert conversation.line(20) is None
    assert b"no" in conversation.errors
    conversation.close()
    assert senders(docker_client) == []
    conversation.close()  # as by an exit stack after it was closed already
