"""The nginx that a host runs already, with a site of somebody else: nothing of theirs is touched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from onecat import deploy
from onecat.config import Deployment
from onecat.config.schema import Model, Proxy
from onecat.deploy import member_probe, probing
from onecat.deploy.proxies.choosing import choose_proxy
from onecat.deploy.proxies.host import HostNginx
from onecat.deploy.site import Site, Upstream
from onecat.deploy.store import DeploymentStore
from onecat.errors import OnecatError
from onecat.live.logs import Wanted
from onecat.live.logs.sources import open_logs
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
from tests.testbed.nginx_host import NginxHost, running_nginx_host
from tests.testbed.nginx_servers import ALICE, KEYS, SERVERS_OWN, running_server, site
from tests.testbed.ports import free_port

OURS = "conf.d/onecat-demo.conf"
NAME = "models.example"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server(SERVERS_OWN) as address:
        yield address


@pytest.fixture
def host(tmp_path: Path, nginx: str) -> Iterator[NginxHost]:
    with running_nginx_host(tmp_path, tmp_path / "data", free_port()) as found:
        yield found


@pytest.fixture
def proxy(host: NginxHost) -> HostNginx:
    return HostNginx(DeploymentStore(host, "demo"))


def status(port: int, name: str, key: str = ALICE) -> int:
    headers = {"Host": name, "Authorization": f"Bearer {key}"}
    return httpx.get(f"http://127.0.0.1:{port}/v1/models", headers=headers, trust_env=False).status_code


def others_answer(host: NginxHost) -> bool:
    url = f"http://127.0.0.1:{host.others_port}/"
    return "somebody else" in httpx.get(url, headers={"Host": "somebody.example"}, trust_env=False).text


def beside_somebody(host: NginxHost, server: str, **values: object) -> Site:
    """A site at the address of somebody else's, told from it by its name."""
    made = site(server, port=host.others_port, keys=KEYS)
    return replace(made, server_name=NAME, **values)  # type: ignore[arg-type]


def test_our_site_is_one_file_beside_those_of_others(host: NginxHost, proxy: HostNginx, server: str) -> None:
    before = host.files()
    asked = beside_somebody(host, server)
    proxy.check(asked, f"{host.data_directory}/release/nginx")
    assert host.files() == before
    proxy.apply(asked)
    assert {name: text for name, text in host.files().items() if "onecat-demo" not in name} == before
    assert set(host.files()) - set(before) == {OURS, "conf.d/onecat-demo.keys"}
    keys = host.status("/etc/nginx/conf.d/onecat-demo.keys")
    assert (keys.mode, keys.uid) == (0o600, 0)
    assert proxy.running()
    assert status(host.others_port, NAME) == 200
    assert status(host.others_port, NAME, "sk-wrong-0123456789") == 401
    assert others_answer(host)
    assert len(proxy.access_lines(10)) == 2
    proxy.apply(replace(asked, upstreams=(), keys=None))
    assert status(host.others_port, NAME) == 503
    proxy.remove()
    assert host.files() == before
    assert not proxy.running()
    assert others_answer(host)


def test_servers_that_are_looked_at_stand_beside_our_site_and_are_marked_there(
    host: NginxHost, proxy: HostNginx, server: str
) -> None:
    before, gone = host.files(), f"127.0.0.1:{free_port()}"
    upstreams = (Upstream(server, 1, "gpu1/1"), Upstream(gone, 1, "gpu2/1"))
    asked = beside_somebody(host, server, upstreams=upstreams, probed=True)
    proxy.check(asked, f"{host.data_directory}/release/nginx")
    assert host.files() == before
    proxy.apply(asked)
    assert set(host.files()) - set(before) == {OURS, "conf.d/onecat-demo.keys", "conf.d/onecat-demo.servers"}
    store = DeploymentStore(host, "demo")
    store.machine.make_directory(store.directory)
    store.machine.write(f"{store.directory}/traffic.lock", b"")
    asking, test = proxy.argv("-t")
    assert asking is host
    reload = proxy.argv("-s", "reload")[1]
    probing._write(store, {"servers": proxy.servers_path(), "test": test, "reload": reload})
    folder, written = probing.probe_directory(store), proxy.files()
    for _ in range(member_probe.FAILURES):
        looked = host.run([sys.executable, "-I", f"{folder}/member_probe.py", f"{folder}/settings.json"])
        assert looked.exit_code == 0, looked
    assert f"{gone} gets no requests" in looked.stdout.decode()
    assert f"server {gone} weight=1 max_fails=1 fail_timeout=10s down;".encode() in (
        host.read(proxy.servers_path()) or b""
    )
    assert proxy.files() == written, "a mark is no edit by hand"
    assert [status(host.others_port, NAME) for _ in range(9)] == [200] * 9
    proxy.apply(replace(asked, upstreams=upstreams[:1], probed=False))
    assert "conf.d/onecat-demo.servers" not in host.files()
    proxy.remove()
    assert host.files() == before


def test_a_configuration_that_somebody_broke_is_told_and_left_as_it_is(
    host: NginxHost, proxy: HostNginx, server: str
) -> None:
    asked = beside_somebody(host, server)
    proxy.apply(asked)
    theirs = host.path("/etc/nginx/sites-enabled/somebody")
    theirs.write_text(theirs.read_text() + "\nserver { listen 127.0.0.1:1; nonsense on; }\n")
    before = host.files()
    for change in (lambda: proxy.apply(replace(asked, upstreams=())), proxy.remove,
                   lambda: proxy.check(asked, f"{host.data_directory}/release/nginx")):  # fmt: skip
        with pytest.raises(OnecatError, match="broken already") as told:
            change()
        assert told.value.where == "/etc/nginx/sites-enabled/somebody:7"
        assert host.files() == before
    assert status(host.others_port, NAME) == 200
    assert others_answer(host)
    assert proxy.running()


def test_our_own_file_broken_by_hand_is_written_anew(host: NginxHost, proxy: HostNginx, server: str) -> None:
    asked = beside_somebody(host, server)
    proxy.apply(asked)
    good = host.files()[OURS]
    host.path(f"/etc/nginx/{OURS}").write_text("nonsense on;\n")
    proxy.apply(asked)
    assert host.files()[OURS] == good
    assert status(host.others_port, NAME) == 200


def test_the_site_of_another_home_with_a_deployment_of_that_name_is_left_alone(
    host: NginxHost, proxy: HostNginx, server: str, tmp_path: Path
) -> None:
    asked = beside_somebody(host, server)
    proxy.apply(asked)
    host.make_directory(proxy._store.directory)
    before = host.files()
    elsewhere = NginxHost(tmp_path / "other", host.pid, host.others_port)
    other = HostNginx(DeploymentStore(elsewhere, "demo"))
    renamed = replace(asked, server_name="other.example")
    for change in (lambda: other.check(renamed, str(tmp_path / "release/nginx")), lambda: other.apply(renamed)):
        with pytest.raises(OnecatError, match="from another ONECAT_HOME") as told:
            change()
        assert f"ONECAT_HOME={host.data_directory} onecat down demo" in told.value.next_steps[1]
    other.remove()
    assert (host.files(), other.running(), proxy.running()) == (before, False, True)
    assert status(host.others_port, NAME) == 200
    host.path(proxy._store.directory).rename(host.path(f"{host.data_directory}/gone"))
    other.apply(renamed)
    assert (other.running(), status(host.others_port, "other.example")) == (True, 200)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"server_name": "somebody.example"}, "has the name somebody.example on 127.0.0.1"),
        ({"server_name": "_"}, "listens on 127.0.0.1:.* already, and ours has no server name"),
        ({"retry_after_seconds": "x;}"}, "does not accept the site"),
    ],
)
def test_a_site_that_would_not_fit_beside_others_is_refused_beforehand(
    host: NginxHost, proxy: HostNginx, server: str, values: dict[str, object], told: str
) -> None:
    before = host.files()
    asked = replace(beside_somebody(host, server), **values)  # type: ignore[arg-type]
    for change in (lambda: proxy.check(asked, f"{host.data_directory}/release/nginx"), lambda: proxy.apply(asked)):
        with pytest.raises(OnecatError, match=told):
            change()
        assert host.files() == before
    assert others_answer(host)


def test_an_address_that_is_taken_leaves_the_site_of_before(host: NginxHost, proxy: HostNginx, server: str) -> None:
    asked = beside_somebody(host, server)
    proxy.apply(asked)
    before = host.files()
    with pytest.raises(OnecatError, match=r"the port of proxy\.listen is in use"):
        proxy.apply(replace(asked, listen=server))
    assert host.files() == before
    assert status(host.others_port, NAME) == 200
    assert others_answer(host)


def test_which_nginx_is_taken(host: NginxHost, tmp_path: Path) -> None:
    def chosen(instance: str = "auto", current: str | None = None) -> tuple[str | None, str]:
        proxy = Proxy(instance=instance, image="onecat-test/none:1")  # type: ignore[arg-type]
        deployment = Deployment(name="demo", profile="cpu", model=Model(path="/m"), proxy=proxy)
        found = choose_proxy(host, deployment, "unix:///nonexistent/docker.sock", current)  # type: ignore[arg-type]
        return found.kind, found.why

    assert chosen() == ("host", "the host's nginx runs, and onecat is root")
    assert chosen(current="own") == ("own", "it stands before the current release")
    host.is_root = False
    assert chosen() == ("own", "nginx is installed; the host's nginx gets sites from root alone")
    with pytest.raises(OnecatError, match="from root alone"):
        chosen("host")
    with pytest.raises(OnecatError, match="no Docker engine"):
        chosen("container")
    host.is_root = True
    host.path("/etc/nginx/nginx.conf").write_text("events {}\nhttp { include sites-enabled/*; }\n")
    kind, why = chosen()
    assert (kind, why) == ("own", "nginx is installed; the host's nginx reads no folder conf.d")
    host.run(["nginx", "-s", "stop"])
    host.path("/etc/nginx/nginx.conf").write_text("events {}\nhttp { include /etc/nginx/conf.d/*.conf; }\n")
    assert chosen() == ("own", "nginx is installed; the host's nginx does not run")


@dataclass
class OnThatHost(SmallDeployment):
    """A deployment whose host is the one with the nginx."""

    host: NginxHost | None = None

    @property
    def machine(self) -> NginxHost:
        assert self.host is not None
        return self.host


def test_releases_follow_one_another_behind_the_hosts_nginx(host: NginxHost, tiny_model: Path, tmp_path: Path) -> None:
    small = OnThatHost(
        Home(tmp_path / "data", tmp_path / "cache"), tiny_model, free_port(), host.others_port, host=host
    )
    before = host.files()
    proxy = {"listen": f"127.0.0.1:{host.others_port}", "server_name": NAME, "instance": "auto"}
    assert small.up(proxy=proxy).proxy_kind == "host"
    assert "nginx: host (the host's nginx runs, and onecat is root)" in small.reported
    assert small.up("--max-num-seqs", "8", proxy=proxy).number == 2
    assert status(host.others_port, NAME) == 200
    found = small.status()
    assert (found.state, found.proxy) == ("serving", "host")
    by_stream = {each.reader.source.stream: each.lines for each in open_logs(host, Wanted("demo", nginx=True))}
    assert '"status":200' in by_stream["nginx access"].last_lines(1)[0].replace(" ", "")
    follow = by_stream["nginx error"].follow(1)
    assert host.run(["sh", "-c", "echo somebody writes >> /var/log/nginx/error.log"]).exit_code == 0
    assert next(line for line in follow if "somebody" in line) == "somebody writes"
    follow.close()  # type: ignore[attr-defined]
    host.is_root = False
    with pytest.raises(OnecatError, match="the logs of the host's nginx are root's"):
        open_logs(host, Wanted("demo", nginx=True))
    host.is_root = True
    theirs = host.path("/etc/nginx/sites-enabled/somebody")
    good = theirs.read_text()
    theirs.write_text(good + "nonsense on;\n")
    with pytest.raises(OnecatError, match="broken already: see /etc/nginx/sites-enabled/somebody:6"):
        small.up("--max-num-seqs", "4", proxy=proxy)
    assert small.status().state == "serving"
    assert status(host.others_port, NAME) == 200
    with pytest.raises(OnecatError, match="the servers are stopped, but nginx still has the site"):
        deploy.down(small.store)
    assert small.processes() == []
    theirs.write_text(good)
    assert small.up(proxy=proxy).proxy_kind == "host"
    deploy.down(small.store)
    assert host.files() == before
    assert others_answer(host)
