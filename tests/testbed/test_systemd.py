"""Releases that a real systemd looks after, over SSH as a user with sudo; the server is the small one in an image."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from onecat.config.schema import Restart
from onecat.deploy import daemon_reload, health_gate, units
from onecat.deploy.container import HOME_LABEL
from onecat.deploy.container_spec import ContainerSpec
from onecat.deploy.readiness import NotReady, wait_until_ready
from onecat.deploy.server import ServerState
from onecat.deploy.unit_server import STATE_DIRECTORY, UNIT_DIRECTORY, UnitServer
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import SshMachine
from tests.testbed.deployments import SERVER
from tests.testbed.systemd_host import DEFAULT_START_SECONDS, SystemdHost
from tests.testbed.test_ssh_machine import connect
from tests.testbed.test_up_container import server_image

__all__ = ["server_image"]
NAME = "onecat-demo-0003"
UNIT = f"{NAME}.service"
SILENCE_SECONDS = 3.0


@pytest.fixture
def machine(systemd_host: SystemdHost) -> Iterator[SshMachine]:
    with contextlib.closing(connect(systemd_host.ssh)) as connected:
        yield connected


@dataclass
class Units:
    """Makes the server of one release on the host."""

    host: SystemdHost
    machine: SshMachine
    spec: ContainerSpec
    directory: str

    def server(self, *words: str, max_crashes: int = 10) -> UnitServer:
        spec = replace(self.spec, command=(*self.spec.command, *words))
        return UnitServer.prepare(
            self.machine,
            self.directory,
            spec,
            None,
            deployment="demo",
            number=3,
            restart=Restart(max_crashes=max_crashes),
            allow_daemon_reload=False,
        )

    def started(self, *words: str, max_crashes: int = 10) -> UnitServer:
        server = self.server(*words, max_crashes=max_crashes)
        server.start()
        wait_until_ready(server, self.machine.reach(self.url), self.spec.silence_seconds, lambda text: None)
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.spec.port}"

    def accepted(self, *words: str, max_crashes: int = 10) -> UnitServer:
        server = self.started(*words, max_crashes=max_crashes)
        server.accept()
        return server

    def show(self, name: str, unit: str = UNIT) -> str:
        return self.host.run("systemctl", "show", unit, "--value", f"--property={name}").stdout.strip()

    def crash(self) -> None:
        """The server's container dies, as soon as it is there."""
        limit = time.monotonic() + 10
        while self.host.run("docker", "kill", NAME).code != 0:
            assert time.monotonic() < limit
            time.sleep(0.1)

    def left(self) -> list[str]:
        """What there is of the release on the host but its directory."""
        files = self.host.run("ls", "-A", UNIT_DIRECTORY, f"{UNIT_DIRECTORY}/multi-user.target.wants", STATE_DIRECTORY)
        containers = self.host.run("docker", "ps", "--all", "--format", "{{.Names}}")
        return [line for line in (files.stdout + containers.stdout).splitlines() if NAME in line]


@pytest.fixture
def release(
    systemd_host: SystemdHost,
    machine: SshMachine,
    server_image: str,
    docker_client: Any,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> Iterator[Units]:
    model = systemd_host.shared / "model"
    model.mkdir(exist_ok=True)
    directory = f"{machine.data_directory}/{tmp_path.name}"
    machine.make_directory(directory)
    spec = ContainerSpec(
        name=NAME,
        image=docker_client.images.get(server_image).id,
        command=("/models/tiny", "--host", "0.0.0.0", "--port", "8000"),
        env={},
        model_directory=str(model),
        model_mount="/models/tiny",
        host="127.0.0.1",
        port=free_port(),
        shm_bytes=64 * 2**20,
        gpus=0,
        user="65534:65534",
        silence_seconds=SILENCE_SECONDS,
        labels={HOME_LABEL: "test"},
    )
    made = Units(systemd_host, machine, spec, directory)
    yield made
    with contextlib.closing(connect(systemd_host.ssh)) as connected:
        UnitServer(connected, directory, None).stop()
        assert made.left() == []
        connected.remove(directory)


def wait_for(server: UnitServer, condition: str, seconds: float = 15) -> ServerState:
    limit = time.monotonic() + seconds
    while (found := server.state()).condition != condition:
        assert time.monotonic() < limit, f"{found}\n" + "\n".join(server.last_lines(20))
        time.sleep(0.1)
    return found


def test_an_accepted_release_comes_back_after_a_crash_and_after_the_host(release: Units) -> None:
    server = release.started()
    server.accept()
    assert (release.show("ActiveState"), release.show("UnitFileState")) == ("active", "enabled")
    assert release.show("NeedDaemonReload") == "no"
    assert server.activity().cpu_seconds > 0
    first = wait_for(server, "running")
    release.crash()
    assert "exited with status 137" in (wait_for(server, "backing-off").last_exit or "")
    found = wait_for(server, "running")
    assert (found.pid == first.pid, found.restarts) == (False, 1)
    release.host.run("systemctl", "restart", "docker.service").expect(0)
    assert wait_for(server, "running").pid != found.pid
    release.host.reboot()
    with contextlib.closing(connect(release.host.ssh)) as again:
        server = UnitServer(again, release.directory, None)
        assert wait_for(server, "running").restarts == 0
        wait_until_ready(server, again.reach(release.url), SILENCE_SECONDS, lambda text: None)


def test_systemd_alone_starts_it_again_until_the_limit(release: Units) -> None:
    server = release.accepted(max_crashes=2)
    # What is killed is Docker's client: the container that it leaves behind goes all the same.
    release.host.run("systemctl", "kill", "--signal=KILL", "--kill-who=main", UNIT).expect(0)
    assert "was killed by signal 9" in (wait_for(server, "backing-off").last_exit or "")
    wait_for(server, "running")
    release.crash()
    found = wait_for(server, "keeps-crashing")
    assert "exited with status 137" in (found.last_exit or "")


def test_a_crash_before_it_is_accepted_is_not_answered_by_a_restart(release: Units) -> None:
    with pytest.raises(NotReady):
        release.started("--fail-with", "torch.OutOfMemoryError: CUDA out of memory.")
    server = UnitServer(release.machine, release.directory, None)
    assert any("CUDA out of memory" in line for line in server.last_lines(10))
    time.sleep(1.5)  # systemd's own wait before a restart is 1 s
    assert server.state().condition == "exited"
    assert sum("CUDA out of memory" in line for line in server.last_lines(100)) == 1
    release.host.reboot()
    assert (release.show("ActiveState"), release.show("ConditionResult")) == ("inactive", "no")


def test_a_slow_start_that_logs_outlasts_systemds_limit_and_the_silence(release: Units) -> None:
    assert release.host.run("systemctl", "show", "--value", "--property=DefaultTimeoutStartUSec").stdout.strip() == (
        f"{DEFAULT_START_SECONDS}s"
    )
    began = time.monotonic()
    server = release.accepted("--chatty", "4")
    assert time.monotonic() - began > max(DEFAULT_START_SECONDS, SILENCE_SECONDS)
    assert (release.show("ActiveState"), release.show("NRestarts")) == ("active", "0")
    assert server.state().condition == "running"


def test_systemd_itself_gives_a_silent_start_up(release: Units) -> None:
    server = release.server("--hang")
    server.start()
    wait_for(server, "exited")
    assert any(
        line.endswith("no log line, no disk read and no CPU use for 3 s: it hangs") for line in server.last_lines(9)
    )
    limit = time.monotonic() + 10
    while release.host.run("docker", "ps", "--quiet", "--filter", f"name={NAME}").stdout:
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_a_log_is_followed_to_its_end_and_stays_when_the_unit_is_gone(release: Units) -> None:
    server = release.accepted()
    following = server.follow(100)
    seen = [next(following)]
    server.stop()
    seen += following
    assert any("Application startup complete" in line for line in seen)
    assert any("shutdown triggered" in line for line in seen)
    assert server.state().condition == "absent"
    assert server.last_lines(100) == seen
    assert release.left() == []


def test_a_reload_that_is_needed_is_made_and_harms_no_container(release: Units) -> None:
    server = release.accepted()
    first = server.state().pid
    release.host.run("touch", f"{UNIT_DIRECTORY}/{UNIT}").expect(0)
    assert release.show("NeedDaemonReload") == "yes"
    root = release.machine.root()
    assert root is not None
    daemon_reload.reload(root, None, allowed=False)
    assert release.show("NeedDaemonReload") == "no"
    assert server.state().pid == first


def test_a_container_that_may_not_open_its_gpus_any_more_is_told(
    systemd_host: SystemdHost, machine: SshMachine, server_image: str
) -> None:
    """No GPU is here: device files of another kind have a GPU's name, and the control group forbids to open one."""
    root = machine.root()
    assert root is not None
    systemd_host.run("mknod", "/dev/nvidia0", "c", "195", "0").expect(0)
    run = ["docker", "run", "--detach", "--rm", "--label", f"{HOME_LABEL}=test", "--entrypoint", "sleep"]
    image = [server_image, "60"]
    label = "io.onecat.deployment=well"
    systemd_host.run(*run, "--label", label, "--device", "/dev/fuse:/dev/nvidia0:rw", "--name", "well", *image).expect(
        0
    )
    try:
        assert daemon_reload.links_missing(machine.names("/dev"), machine.names("/dev/char"))
        daemon_reload.reload(root, None, allowed=False)  # Docker here manages the control groups itself
        label = "io.onecat.deployment=demo"
        lost = ["--label", label, "--device", "/dev/fuse:/dev/nvidia0:r", "--name", "lost"]
        systemd_host.run(*run, *lost, *image).expect(0)
        with pytest.raises(OnecatError, match="^lost lost the GPUs at systemctl daemon-reload") as raised:
            daemon_reload.reload(root, None, allowed=True)
        assert (raised.value.code, raised.value.next_steps) == (ExitCode.NEEDS_PERSON, ("onecat restart demo",))
    finally:
        systemd_host.run("docker", "rm", "--force", "well", "lost")
        systemd_host.run("rm", "/dev/nvidia0").expect(0)


def test_a_container_of_others_with_its_name_stays(release: Units) -> None:
    server = release.server()
    made = ["docker", "create", "--name", NAME, release.spec.image, "x"]
    release.host.run(*made).expect(0)
    try:
        with pytest.raises(OnecatError, match="another container is called"):
            server.start()
        assert release.left() == [NAME]
    finally:
        release.host.run("docker", "rm", NAME).expect(0)


def test_systemd_finds_no_fault_in_the_unit(release: Units) -> None:
    release.server()
    path = f"{release.directory}/systemd/{UNIT}"
    assert units.verify(release.machine, path) == ()


def test_the_unit_of_a_native_server_starts_when_installed_by_hand(
    systemd_host: SystemdHost, free_port: Callable[[], int]
) -> None:
    port, home = free_port(), "/var/lib/onecat-native"
    systemd_host.run("install", "-d", "-o", "1000", "-g", "1000", home).expect(0)
    # Copies, because the unit sees nothing below /tmp, where this checkout may lie.
    systemd_host.run("cp", SERVER, health_gate.__file__, home).expect(0)

    def install(*words: str) -> None:
        argv = ["/usr/bin/python3", "-I", f"{home}/{SERVER.name}", "model", "--port", str(port), *words]
        text = units.native_unit(
            "native",
            1,
            argv,
            {},
            None,
            f"http://127.0.0.1:{port}",
            SILENCE_SECONDS,
            Restart(),
            5,
            home,
            user=(1000, 1000),
            python="/usr/bin/python3",
            helpers=home,
        )
        (systemd_host.shared / "onecat-native.service").write_text(text)
        systemd_host.run("cp", systemd_host.shared / "onecat-native.service", UNIT_DIRECTORY).expect(0)
        systemd_host.run("systemctl", "daemon-reload").expect(0)

    try:
        install("--chatty", "4")
        started = systemd_host.run("systemctl", "start", "onecat-native")
        assert started.code == 0, systemd_host.run("journalctl", "--unit", "onecat-native", "--no-pager").stdout
        score = systemd_host.run("systemd-analyze", "security", "--no-pager", "onecat-native.service").stdout
        found = re.search(r"Overall exposure level for \S+: ([\d.]+)", score)
        assert found is not None and float(found[1]) <= 2.1
        systemd_host.run("systemctl", "stop", "onecat-native").expect(0)
        install("--hang")
        assert systemd_host.run("systemctl", "start", "onecat-native").code != 0
        log = systemd_host.run("journalctl", "--output", "cat", "--unit", "onecat-native").stdout
        assert "no log line, no disk read and no CPU use for 3 s: it hangs" in log
    finally:
        systemd_host.run("systemctl", "stop", "onecat-native")
        systemd_host.run("rm", f"{UNIT_DIRECTORY}/onecat-native.service").expect(0)
        systemd_host.run("systemctl", "daemon-reload").expect(0)
