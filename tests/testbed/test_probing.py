"""Active probing for real: an nginx before two servers of which one ends, and the timer under a real systemd."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat.deploy import member_probe, probing
from onecat.deploy.front import Front
from onecat.deploy.proxies.own import OwnNginx
from onecat.deploy.store import DeploymentStore
from onecat.deploy.traffic import Member, Traffic
from onecat.deploy.written_files import compare
from onecat.hosts import LocalMachine
from tests.testbed.nginx_servers import running_server, site
from tests.testbed.ports import free_port
from tests.testbed.systemd_host import SystemdHost
from tests.testbed.test_ssh_machine import connect

pytestmark = pytest.mark.testbed


@contextlib.contextmanager
def two_servers() -> Iterator[tuple[str, str, contextlib.ExitStack]]:
    """Two servers; the second ends when its stack is closed."""
    with running_server() as first, contextlib.ExitStack() as second:
        yield first, second.enter_context(running_server()), second


def ask(endpoint: str) -> int:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    return httpx.post(f"{endpoint}/v1/chat/completions", json=body, trust_env=False, timeout=10).status_code


class Probe:
    """The program, run as the timer runs it."""

    def __init__(self, store: DeploymentStore, proxy: OwnNginx) -> None:
        folder = Path(probing.probe_directory(store))
        probing._write(
            store,
            {
                "servers": proxy.servers_path(),
                "test": proxy.argv("-t")[1],
                "reload": proxy.argv("-s", "reload")[1],
            },
        )
        self.argv = [sys.executable, "-I", str(folder / "member_probe.py"), str(folder / "settings.json")]
        self.servers = Path(proxy.servers_path())

    def __call__(self, times: int = 1, code: int = 0) -> str:
        said = ""
        for _ in range(times):
            done = subprocess.run(self.argv, capture_output=True, text=True, timeout=30)
            assert done.returncode == code, (done.stdout, done.stderr)
            said += done.stdout
        return said

    def down(self) -> list[str]:
        return [each.address for each in member_probe.parse(self.servers.read_text()) if each.is_down]


def test_a_server_that_ends_is_left_out_and_comes_back_and_no_change_of_onecats_is_undone(
    tmp_path: Path, nginx: str
) -> None:
    store = DeploymentStore(LocalMachine(tmp_path / "data"), "demo")
    proxy = OwnNginx(store)
    traffic = Traffic(proxy, store.machine, store.directory)
    with two_servers() as (first, second, ends), contextlib.ExitStack() as last:
        last.callback(proxy.remove)
        asked = replace(site(), probed=True)
        traffic.route("gpu1", [Member("gpu1", 1, first)], asked)
        traffic.route("gpu2", [Member("gpu2", 1, second)], asked)
        probe = Probe(store, proxy)
        before = proxy.workers()
        assert probe(3) == "" and proxy.workers() == before, "nothing to do: nginx is left alone"

        ends.close()
        assert probe(member_probe.FAILURES - 1) == ""
        assert f"{second} gets no requests" in probe()
        assert probe.down() == [second]
        while before & proxy.workers():
            time.sleep(0.02)
        assert [ask(asked.endpoint) for _ in range(20)] == [200] * 20
        assert "upstream" not in Path(f"{store.proxy_directory}/logs/error.log").read_text(), "it was not even tried"
        assert compare(traffic.installed(), proxy.files()) == (), "a mark is no edit by hand"
        text = probe.servers.read_text()
        probe.servers.write_text(text.replace("weight=1", "weight=7"))
        assert [each.edit for each in compare(traffic.installed(), proxy.files())] == ["changed"]
        probe.servers.write_text(text)

        # The other host gets a new release: this one's mark stays, whose server is the same.
        traffic.route("gpu1", [Member("gpu1", 2, first)], asked)
        assert probe.down() == [second]
        # Both fail: the one that is left is kept, whatever it answers.
        settings = json.loads(Path(probe.argv[-1]).read_text())
        stale = probe.servers.read_text()
        with running_server() as third:
            traffic.route("gpu2", [Member("gpu2", 2, third)], asked)
            assert probe.down() == [], "another release"
            lines = {each.line for each in member_probe.parse(stale)}
            assert not member_probe.apply(settings, stale, lines), "the servers are others than those that were asked"
            with traffic._changing():
                now = probe.servers.read_text()
                assert not member_probe.apply(settings, now, lines), "onecat is changing nginx"
        probe(member_probe.FAILURES)
        assert probe.down() == [third]
        again = subprocess.Popen(
            [
                sys.executable,
                "-I",
                str(Path(__file__).with_name("openai_server.py")),
                "tiny",
                "--port",
                third.split(":")[1],
            ]
        )
        last.callback(again.wait)
        last.callback(again.terminate)
        limit = time.monotonic() + 10
        while probe.down() and time.monotonic() < limit:
            probe()
        assert probe.down() == []
        traffic.stop()
    assert probe(2) == "", "the servers' file may stay: nobody reads it"


def test_nginx_that_does_not_take_its_files_goes_on_and_the_marks_are_taken_back(tmp_path: Path, nginx: str) -> None:
    store = DeploymentStore(LocalMachine(tmp_path / "data"), "demo")
    proxy = OwnNginx(store)
    with two_servers() as (first, second, ends), contextlib.ExitStack() as last:
        last.callback(proxy.remove)
        traffic = Traffic(proxy, store.machine, store.directory)
        asked = replace(site(), probed=True)
        traffic.route("gpu1", [Member("gpu1", 1, first), Member("gpu1", 2, second)], asked)
        probe = Probe(store, proxy)
        ends.close()
        probe(member_probe.FAILURES - 1)
        broken = Path(f"{store.proxy_directory}/site.conf")
        text = broken.read_text()
        broken.write_text(text + "nonsense;\n")
        assert "nginx does not take the marks" in probe(code=1) and "nonsense" in probe(code=1)
        assert probe.down() == []
        broken.write_text(text)
        probe()
        assert probe.down() == [second]


def test_a_timer_of_systemds_looks_after_the_servers(
    systemd_host: SystemdHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "INTERVAL_SECONDS", 1)
    with contextlib.closing(connect(systemd_host.ssh)) as machine, two_servers() as (first, second, ends):
        store = DeploymentStore(machine, "demo")
        front = Front(store)
        asked = replace(site(port=free_port()), probed=True)
        try:
            for host, server in (("gpu1", first), ("gpu2", second)):
                front.traffic(host, "own").route(host, [Member(host, 1, server)], asked)
            assert probing.missing(store) is None
            traffic = front.traffic("gpu1", "own")
            unit = f"{probing.unit_name('demo')}.timer"
            assert systemd_host.run("systemctl", "is-enabled", unit).stdout == "enabled\n"
            assert probing.keep(store, traffic.proxy) is None, "again changes nothing"
            ends.close()
            answers = []
            limit = time.monotonic() + 60
            while " down;" not in (machine.read(traffic.proxy.servers_path()) or b"").decode():
                assert time.monotonic() < limit, systemd_host.run("journalctl", "--unit", "onecat-demo-probe").stdout
                answers.append(ask(asked.endpoint))
                threading.Event().wait(0.2)
            print(f"\nleft out after {time.monotonic() - limit + 60:.1f} s")
            assert [ask(asked.endpoint) for _ in range(20)] == [200] * 20
            assert set(answers) <= {200, 502}
            assert compare(traffic.installed(), traffic.proxy.files()) == ()
            assert "gets no requests" in systemd_host.run("journalctl", "--unit", "onecat-demo-probe").stdout
            owner = systemd_host.run("stat", "--format", "%U", traffic.proxy.servers_path()).stdout
            assert owner == "onecat\n"
        finally:
            front.traffic("gpu1", "own").pause("gpu2")
            front.traffic("gpu1", "own").stop()
        assert probing.missing(store) is not None
        left: Any = systemd_host.run("find", "/etc/systemd/system", "-name", "onecat-demo-probe*").stdout
        assert left == "" and machine.status(probing.probe_directory(store)) is None
