"""`up`, `status`, `logs` and `down` on a host over SSH, and what is left where the connection is cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat import deploy
from onecat.checkpoints import inspect
from onecat.deploy.lock_breaking import break_lock, held_lock
from onecat.deploy.model_files import inspect_on
from onecat.deploy.prerequisites import check_port
from onecat.deploy.store import DeploymentStore
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import ConnectionLostError, Desk, SshMachine
from onecat.live.logs import Entry, Event, Loss, Notice, Wanted, follow_logs, read_logs
from onecat.paths import Home
from tests.testbed import systemd_host as systemd_hosts
from tests.testbed.conftest import need_program
from tests.testbed.deployments import SmallDeployment
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.ports import free_port
from tests.testbed.remote_hosts import RemoteHost, running_remote_host
from tests.testbed.test_up_container import server_image  # noqa: F401 - a fixture

pytestmark = pytest.mark.testbed


@pytest.fixture(scope="module")
def remote_host(
    docker_client: Any, docker_daemon: DockerDaemon, base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RemoteHost]:
    image = systemd_hosts.ensure_systemd_image(docker_client)
    port = free_port()
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


@pytest.fixture(scope="module")
def deployed(
    remote_host: RemoteHost,
    tiny_model: Path,
    server_image: str,  # noqa: F811 - a fixture
    docker_client: Any,
) -> Iterator[RemoteDeployment]:
    """A deployment that stays from test to test, so that each need not start from nothing."""
    model = remote_host.shared / "tiny"
    shutil.copytree(tiny_model, model)
    for path in (model, *model.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    home = Home(remote_host.home, remote_host.home / "cache")
    port = free_port()
    yield RemoteDeployment(home, model, port, port + 100, None, server_image)
    with contextlib.closing(remote_host.connect()) as machine, contextlib.suppress(OnecatError):
        deploy.down(deploy.find_deployment(machine, "demo"))
    assert ours(docker_client) == []
    assert remote_host.processes("onecat-lock") == [] and remote_host.processes("nginx: master") == []


@pytest.fixture
def remote(deployed: RemoteDeployment, remote_host: RemoteHost) -> Iterator[RemoteDeployment]:
    """The same with a connection of this test's own."""
    deployed.reported.clear()
    with contextlib.closing(remote_host.connect()) as deployed.connection:
        yield deployed


def ours(docker_client: Any) -> list[str]:
    found = docker_client.containers.list(all=True, filters={"label": "io.onecat.deployment=demo"})
    return sorted(container.name for container in found)


def ask(url: str) -> int:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=30).status_code


def test_a_completion_through_nginx_on_the_host(remote: RemoteDeployment, docker_client: Any) -> None:
    release = remote.up()
    assert ask(release.endpoint) == 200
    assert release.directory == f"{remote.home.data}/deployments/demo/releases/0001"
    assert (release.host_name, release.number) == ("gpu1", 1)
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


class Clients:
    """Someone who asks all the time, and what was answered."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self.answers: list[int | str] = []
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._ended.wait(0.02):
            try:
                self.answers.append(ask(self._url))
            except httpx.HTTPError as error:
                self.answers.append(repr(error))


@dataclass(frozen=True)
class Cut:
    """Where a connection is cut: before a file is written, or after something was written down in the audit log."""

    file: str = ""
    event: str = ""

    def __str__(self) -> str:
        return f"before {self.file}" if self.file else f"after {self.event}"


class FragileMachine(SshMachine):
    """A host whose connection is cut at a place of one's choice."""

    host: RemoteHost
    cut: Cut

    def write(self, path: str, content: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
        if self.cut.file and path.endswith(self.cut.file):
            self.host.cut()
        super().write(path, content, mode, owner)

    def append(self, path: str, content: bytes) -> None:
        super().append(path, content)
        if self.cut.event and f'"event": "{self.cut.event}"'.encode() in content:
            self.host.cut()


CUTS = [
    Cut(file="/plan.json"),
    Cut(event="up"),
    Cut(event="started"),
    Cut(event="ready"),
    Cut(event="answered"),
    Cut(file="/traffic-own.json"),
    Cut(file="/site.conf"),
    Cut(event="routed"),
    Cut(file="/deployment.json"),
    Cut(event="draining"),
    Cut(file="/server.log"),
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_cut_connection_loses_no_request_and_the_next_command_goes_on(
    remote: RemoteDeployment, remote_host: RemoteHost, docker_client: Any, cut: Cut
) -> None:
    before = remote.up()
    endpoint = before.endpoint
    words = ("--answer", "words", "--exit-code", str(before.number + 1))  # another plan each time
    with Clients(endpoint) as clients, contextlib.closing(remote_host.connect(FragileMachine)) as fragile:
        fragile.host, fragile.cut = remote_host, cut
        remote.connection = fragile
        try:
            remote.up(*words)
        except OnecatError as error:
            assert error.code == ExitCode.UNREACHABLE, error
            assert "onecat up" in error.next_steps[0], error.next_steps
        else:
            assert cut in CUTS[-2:], "it was accepted and the old one left behind"
        assert fragile.is_lost
        assert ask(endpoint) == 200
        with contextlib.closing(remote_host.connect()) as remote.connection:
            release = remote.up(*words)
            assert remote.status().state == "serving"
            assert ours(docker_client) == [release.container]
            assert [each.outcome for each in remote.store.releases() if each.live] == ["serving"]
            assert len(remote_host.processes("onecat-lock")) == 0
            remote.connection = None
    assert set(clients.answers) == {200}, [each for each in clients.answers if each != 200]
    assert len(clients.answers) > 20


def test_an_operator_who_is_killed_leaves_no_lock_and_what_was_begun_is_cleaned_up(
    remote: RemoteDeployment, remote_host: RemoteHost, docker_client: Any
) -> None:
    before = remote.up()
    program = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.testbed.test_up_remote import DyingMachine, RemoteDeployment, RemoteHost
from tests.testbed.ssh_host import SshHost
from onecat.paths import Home
from pathlib import Path
ssh = SshHost("", {remote_host.ssh.address!r}, {remote_host.ssh.port}, {remote_host.ssh.user!r},
              Path({str(remote_host.ssh.key)!r}), Path({str(remote_host.ssh.known_hosts)!r}), "")
host = RemoteHost("gpu1", None, ssh, Path({str(remote_host.shared)!r}))
home = Home(Path({str(remote.home.data)!r}), Path({str(remote.home.data)!r}))
RemoteDeployment(home, Path({str(remote.model)!r}), {remote.port}, {remote.proxy_port}, None, {remote.image!r},
                 connection=host.connect(DyingMachine)).up("--answer", "words", "--exit-code", "77")
"""
    died = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert died.returncode == -9, died.stderr
    assert len(ours(docker_client)) == 2, "the new one runs beside the old one"
    assert ask(before.endpoint) == 200
    again = remote.up("--answer", "words", "--exit-code", "77")
    assert any("whose command was ended before it was done" in line for line in remote.reported)
    assert ours(docker_client) == [again.container]


class DyingMachine(SshMachine):
    """A host whose operator is killed when the new server is ready."""

    def append(self, path: str, content: bytes) -> None:
        super().append(path, content)
        if b'"event": "ready"' in content:
            os.kill(os.getpid(), 9)


def test_two_operators_at_once_and_breaking_the_lock_of_one_who_is_gone(
    remote: RemoteDeployment, remote_host: RemoteHost
) -> None:
    remote.up()
    with contextlib.closing(remote_host.connect()) as other:
        store = DeploymentStore(other, "demo")
        with pytest.raises(ConnectionLostError, match="the lock on the host was lost"), store.lock("onecat up"):
            with pytest.raises(OnecatError, match="is being worked on: .* runs `onecat up` since") as raised:
                remote.up()
            assert raised.value.code == ExitCode.ROLLED_BACK
            assert "onecat unlock demo --host gpu1" in raised.value.next_steps[1]
            held = held_lock(remote.store)
            assert held is not None and held.purpose == "onecat up" and len(held.processes) == 1
            assert "onecat-lock" in held.processes[0][1]
            break_lock(remote.store, held)
            assert held_lock(remote.store) is None
            assert remote.up().number >= 1
            while True:
                other.write(f"{remote.home.data}/nothing", b"")
                time.sleep(0.05)
    assert remote.store.audit.entries()[-1].event == "unlocked"


def test_a_native_server_is_refused_and_an_image_nobody_has_is_named(remote: RemoteDeployment) -> None:
    image, remote.image = remote.image, "onecat-test/no-such-image:1"
    try:
        with pytest.raises(OnecatError, match="the image onecat-test/no-such-image:1 is not there") as raised:
            remote.up()
    finally:
        remote.image = image
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert any("--on gpu1" in step for step in raised.value.next_steps)


def test_a_model_is_looked_at_on_its_host(remote: RemoteDeployment) -> None:
    there, here = inspect_on(remote.machine, str(remote.model)), inspect(remote.model)
    assert there == here and there.weight_bytes > 0
    with pytest.raises(OnecatError, match="does not exist on gpu1"):
        inspect_on(remote.machine, "/nowhere")
    weights = next(path for path in remote.model.iterdir() if path.suffix == ".safetensors")
    content = weights.read_bytes()
    try:
        weights.write_bytes(content[:-1])
        (problem,) = inspect_on(remote.machine, str(remote.model)).problems
        assert (problem.code, problem.where) == ("truncated", str(weights))
        weights.chmod(0)
        with pytest.raises(OnecatError, match="cannot be read: Permission denied"):
            inspect_on(remote.machine, str(remote.model))
    finally:
        weights.chmod(0o644)
        weights.write_bytes(content)


def test_a_port_that_somebody_has_on_the_host_is_told_before_anything_changes(remote: RemoteDeployment) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(OnecatError, match=f"port {port} is in use on gpu1"):
            check_port(remote.machine, "127.0.0.1", port, "port")
    with pytest.raises(OnecatError, match="gpu1 has no address 203.0.113.7"):
        check_port(remote.machine, "203.0.113.7", port, "port")


# --- logs -------------------------------------------------------------------------------------------------------------


def test_logs_of_two_hosts_are_merged_and_a_lost_one_does_not_end_the_other(
    remote: RemoteDeployment, remote_host: RemoteHost, small: SmallDeployment
) -> None:
    remote.up()
    small.up()
    machines = (small.machine, remote.machine)
    told = read_logs(machines, Desk(), Wanted("demo", lines=None))
    entries = [event for event in told if isinstance(event, Entry)]
    assert {entry.source.host for entry in entries} == {"local", "gpu1"}
    moments = [entry.moment for entry in entries if entry.moment is not None]
    assert moments == sorted(moments) and len(moments) == len(entries)

    seen: list[Event] = []
    is_cut = is_over = False
    for event in follow_logs(machines, Desk(), Wanted("demo", lines=None)):
        seen.append(event)
        hosts = {each.source.host for each in seen if isinstance(each, Entry)}
        if hosts == {"local", "gpu1"} and not is_cut:
            is_cut = True
            remote_host.cut()
        if isinstance(event, Loss):
            assert (event.host, getattr(event.error, "code", None)) == ("gpu1", ExitCode.UNREACHABLE)
            assert ask(f"http://127.0.0.1:{small.proxy_port}") == 200
        elif any(isinstance(each, Loss) for each in seen):
            # The last one says that the log has ended, which is the end of all.
            assert isinstance(event, Entry if not is_over else (Entry, Notice)) and event.source.host == "local"
            if isinstance(event, Entry) and "POST /v1/chat/completions" in event.text and not is_over:
                is_over = True
                deploy.down(small.store)
    assert is_over and sum(isinstance(each, Loss) for each in seen) == 1
