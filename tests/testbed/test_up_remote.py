"""`up`, `status`, `logs` and `down` on a host over SSH, and what is left where the connection is cut."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat import deploy
from onecat.errors import OnecatError
from onecat.hosts import SshMachine
from onecat.paths import Home
from tests.testbed import systemd_host as systemd_hosts
from tests.testbed.conftest import need_program
from tests.testbed.deployments import SmallDeployment
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.remote_hosts import RemoteHost, running_remote_host
from tests.testbed.test_up_container import server_image  # noqa: F401 - a fixture

pytestmark = pytest.mark.testbed


@pytest.fixture(scope="module")
def remote_host(
    docker_client: Any, docker_daemon: DockerDaemon, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RemoteHost]:
    import socket

    image = systemd_hosts.ensure_systemd_image(docker_client)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = need_program("docker", "docker.io")
    directory = tmp_path_factory.mktemp("remote")
    with running_remote_host(docker_client, docker_daemon, image, directory, port, docker_program=program) as host:
        yield host


@dataclass
class RemoteDeployment(SmallDeployment):
    """A small deployment whose host is another one."""

    connection: SshMachine | None = None

    @property
    def machine(self) -> Any:
        assert self.connection is not None
        return self.connection


@pytest.fixture
def remote(
    remote_host: RemoteHost,
    tiny_model: Path,
    free_port: Callable[[], int],
    server_image: str,  # noqa: F811 - a fixture
    docker_client: Any,
) -> Iterator[RemoteDeployment]:
    model = remote_host.shared / "tiny"
    if not model.exists():
        shutil.copytree(tiny_model, model)
        for path in (model, *model.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
    home = Home(remote_host.home, remote_host.home / "cache")
    with contextlib.closing(remote_host.connect()) as machine:
        yield RemoteDeployment(home, model, free_port(), free_port(), None, server_image, connection=machine)
    with contextlib.closing(remote_host.connect()) as machine:
        with contextlib.suppress(OnecatError):
            deploy.down(deploy.find_deployment(machine, "demo"))
        machine.remove(f"{machine.data_directory}/deployments/demo")
    assert ours(docker_client) == []
    assert remote_host.processes("onecat-lock") == [] and remote_host.processes("nginx: master") == []


def ours(docker_client: Any) -> list[str]:
    found = docker_client.containers.list(all=True, filters={"label": "io.onecat.deployment=demo"})
    return sorted(container.name for container in found)


def ask(url: str) -> int:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=30).status_code


def test_a_completion_through_nginx_on_the_host(remote: RemoteDeployment, docker_client: Any) -> None:
    release = remote.up()
    assert ask(release.endpoint) == 200
    assert (release.host_name, release.number, release.directory) == (
        "gpu1",
        1,
        f"{remote.home.data}/deployments/demo/releases/0001",
    )
    found = remote.status()
    assert (found.state, found.runtime, found.container) == ("serving", "container", "onecat-demo-0001")
    assert any("Application startup complete" in line for line in deploy.last_lines(remote.store, 50))
    began = time.monotonic()
    assert remote.up().number == 1
    print(f"\nno change: {time.monotonic() - began:.2f} s")
    assert remote.reported[-1].endswith("nothing to do")
    began = time.monotonic()
    remote.status()
    print(f"status: {time.monotonic() - began:.2f} s")
    second = remote.up("--answer", "words")
    assert (second.number, second.strategy) == (2, "blue-green")
    assert ask(second.endpoint) == 200
    assert ours(docker_client) == ["onecat-demo-0002"]
    assert deploy.down(remote.store) is True
    assert ours(docker_client) == []
    assert remote.status().state == "stopped"
