"""`up`, `status`, `logs` and `down` with `service: systemd`, on a host over SSH with a real systemd."""

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
from onecat.deploy import unit_server
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import SshMachine
from onecat.live.logs import Wanted
from onecat.live.logs.sources import open_logs
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
from tests.testbed.ssh_host import SshHost
from tests.testbed.systemd_host import SystemdHost
from tests.testbed.test_ssh_machine import connect
from tests.testbed.test_up_container import server_image

__all__ = ["server_image"]
KEY = "sk-Xq7-nobody-may-see-this"


@dataclass
class UnitDeployment(SmallDeployment):
    """A small deployment on a host with systemd."""

    host: SystemdHost | None = None
    connection: SshMachine | None = None

    @property
    def machine(self) -> Any:
        assert self.connection is not None
        return self.connection

    def up(self, *words: str, launcher: Any = None, **changes: Any) -> deploy.Release:
        return super().up(*words, launcher=launcher, service="systemd", **changes)

    def units(self) -> dict[str, str]:
        """The state of each unit of ours that systemd knows, or whose file is there."""
        assert self.host is not None
        files = self.host.run("sh", "-c", "cd /etc/systemd/system && ls -d onecat-*").stdout.split()
        show = ["systemctl", "list-units", "--all", "--no-legend", "--plain", "onecat-*"]
        rows = [line.split() for line in self.host.run(*show).stdout.splitlines()]
        return {**dict.fromkeys(files, "file"), **{row[0]: row[2] for row in rows}}


@pytest.fixture
def managed(
    systemd_host: SystemdHost, tiny_model: Path, free_port: Callable[[], int], server_image: str, docker_client: Any
) -> Iterator[UnitDeployment]:
    model = systemd_host.shared / "tiny"
    if not model.exists():
        shutil.copytree(tiny_model, model)
        for path in (model, *model.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
    with contextlib.closing(connect(systemd_host.ssh)) as machine:
        home = Home(Path(machine.data_directory), Path(machine.data_directory, "cache"))
        made = UnitDeployment(home, model, free_port(), free_port(), None, server_image)
        made.host, made.connection = systemd_host, machine
        yield made
    with contextlib.closing(connect(systemd_host.ssh)) as machine:
        with contextlib.suppress(OnecatError):
            deploy.down(deploy.find_deployment(machine, "demo"))
        machine.remove(f"{machine.data_directory}/deployments/demo")
    assert made.units() == {}
    assert docker_client.containers.list(all=True, filters={"label": "io.onecat.deployment=demo"}) == []


def ask(url: str, key: str | None = None) -> int:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)
    return answer.status_code


def test_a_release_takes_over_from_another_and_a_bad_one_does_not(managed: UnitDeployment) -> None:
    release = managed.up()
    assert (release.service, ask(release.endpoint)) == ("systemd", 200)
    assert managed.units() == {"onecat-demo-0001.service": "active"}
    assert not any("systemd-analyze objects" in line for line in managed.reported)
    found = managed.status()
    assert (found.state, found.container) == ("serving", "onecat-demo-0001")
    assert deploy.compare_deployment(None, managed.store).drift == ()
    assert managed.up().number == 1
    assert managed.up("--busy", "0").number == 2
    assert managed.units() == {"onecat-demo-0002.service": "active"}
    with pytest.raises(OnecatError) as raised:
        managed.up("--fail-with", "torch.OutOfMemoryError: CUDA out of memory.")
    assert "The GPU's memory does not hold" in raised.value.found
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert (managed.status().state, managed.status().release) == ("serving", 2)
    assert managed.units() == {"onecat-demo-0002.service": "active"}
    assert any("Application startup complete" in line for line in deploy.last_lines(managed.store, 50))
    (log,) = open_logs(managed.machine, Wanted("demo"))
    assert log.reader.source.release == 2
    read = list(log.lines.lines())
    assert read and read == log.lines.last_lines(1000)[: len(read)]
    assert list(log.lines.lines(time.time() + 60)) == []
    assert managed.host is not None
    managed.host.run(
        "sed", "-i", "s/RestartSec=1/RestartSec=7/", "/etc/systemd/system/onecat-demo-0002.service"
    ).expect(0)
    (drift,) = deploy.compare_deployment(None, managed.store).drift
    assert (drift.kind, "+RestartSec=7" in drift.diff) == ("unit", True)
    assert deploy.down(managed.store) is True
    assert managed.units() == {}
    assert any("Application startup complete" in line for line in deploy.last_lines(managed.store, 50, 2))


def test_it_serves_again_after_a_reboot_with_its_key_and_nobody_sees_that(
    managed: UnitDeployment, tmp_path: Path, docker_client: Any
) -> None:
    (tmp_path / "key").write_text(KEY)
    release = managed.up(proxy={"kind": "none"}, secrets={"api_key": {"file": str(tmp_path / "key")}})
    assert managed.host is not None
    managed.host.reboot()
    with contextlib.closing(connect(managed.host.ssh)) as again:
        managed.connection = again
        assert managed.wait_for(lambda found: found.state == "serving").release == release.number
    assert (ask(release.server_url), ask(release.server_url, KEY)) == (401, 200)
    (container,) = docker_client.containers.list(filters={"label": "io.onecat.deployment=demo"})
    assert KEY not in str(container.attrs)
    seen = managed.host.run("sh", "-c", f"journalctl | grep -c {KEY}; grep -rl {KEY} /etc /var/lib/onecat; ps axww")
    assert seen.stdout.splitlines()[0] == "0"
    assert f"grep -rl {KEY}" not in seen.stdout.splitlines()[1]


def test_a_host_without_systemd_is_told_before_anything_changes(ssh_host: SshHost) -> None:
    told = pytest.raises(OnecatError, match="systemd does not run here")
    with contextlib.closing(connect(ssh_host)) as machine, told as raised:
        unit_server.check_host(machine, None, allow_daemon_reload=False)
    assert raised.value.code == ExitCode.USAGE


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:2375", "unix:///run/user/1000/docker.sock", "unix:///tmp/d.sock"])
def test_a_daemon_that_the_unit_could_not_reach_is_told(systemd_host: SystemdHost, address: str) -> None:
    with contextlib.closing(connect(systemd_host.ssh)) as machine:
        unit_server.check_host(machine, "unix:///run/docker.sock", allow_daemon_reload=False)
        with pytest.raises(OnecatError, match="the Docker daemon is at"):
            unit_server.check_host(machine, address, allow_daemon_reload=False)
