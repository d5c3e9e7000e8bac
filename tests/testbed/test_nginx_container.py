"""nginx in a container of its own, for hosts with Docker and without nginx."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat import deploy
from onecat.config import Deployment
from onecat.config.schema import Model, Proxy
from onecat.deploy.proxies.choosing import choose_proxy, site_for
from onecat.deploy.proxies.container import ContainerNginx
from onecat.deploy.site import Site
from onecat.deploy.store import DeploymentStore
from onecat.errors import OnecatError
from onecat.hosts import LocalMachine
from onecat.paths import Home
from tests.testbed.cache import Cache
from tests.testbed.conftest import need_program
from tests.testbed.debian_packages import NotToBeHad
from tests.testbed.deployments import SmallDeployment
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.nginx_image import ensure_nginx_image
from tests.testbed.nginx_servers import ALICE, BOB, KEYS, SERVERS_OWN, certificate, running_server, site
from tests.testbed.ports import free_port

NAME = "onecat-demo-nginx"


@pytest.fixture(scope="module")
def image(docker_client: Any, cache: Cache) -> str:
    try:
        return ensure_nginx_image(docker_client, cache)
    except NotToBeHad as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server(SERVERS_OWN) as address:
        yield address


@pytest.fixture
def proxy(tmp_path: Path, docker_client: Any) -> Iterator[ContainerNginx]:
    made = ContainerNginx(DeploymentStore(LocalMachine(tmp_path / "data"), "demo"))
    yield made
    made.remove()
    assert docker_client.containers.list(all=True, filters={"name": NAME}) == []


def status(of: Site, key: str = ALICE) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{of.endpoint}/v1/models", headers=headers, trust_env=False, verify=False).status_code


def test_it_serves_confined_and_takes_changes_without_a_new_container(
    proxy: ContainerNginx, image: str, server: str, docker_daemon: DockerDaemon, docker_client: Any, tmp_path: Path
) -> None:
    asked = site(server, keys=KEYS, image=image, docker_host=docker_daemon.host)
    proxy.check(asked, str(tmp_path / "release/nginx"))
    assert docker_client.containers.list(all=True, filters={"name": NAME}) == []
    proxy.apply(asked)
    assert (status(asked), status(asked, ALICE + "x")) == (200, 401)
    container = docker_client.containers.get(NAME)
    made = container.attrs["HostConfig"]
    assert (made["ReadonlyRootfs"], made["Privileged"], made["NetworkMode"]) == (True, False, "host")
    assert (made["CapDrop"], made["RestartPolicy"]["Name"]) == (["ALL"], "unless-stopped")
    assert not any(key in json.dumps(container.attrs) for key in (ALICE, BOB, SERVERS_OWN))
    proxy.apply(replace(asked, upstreams=(), keys=None))
    assert (status(asked), docker_client.containers.get(NAME).id) == (503, container.id)
    assert proxy.workers()
    # What a timer does on its host, which has Docker's client.
    for words in (["-t"], ["-s", "reload"]):
        machine, argv = proxy.argv(*words)
        assert machine.run([need_program("docker", "docker.io"), *argv[1:]]).exit_code == 0
    assert [json.loads(line)["status"] for line in proxy.access_lines(3)] == [200, 401, 503]
    # Its process is gone, and Docker starts it again, as after a reboot.
    pid = proxy.pid()
    container.exec_run(["nginx", "-p", f"{proxy._directory}/", "-c", "nginx.conf", "-s", "stop"])
    limit = time.monotonic() + 20
    while proxy.pid() in (None, pid):
        assert time.monotonic() < limit
        time.sleep(0.05)
    with httpx.Client(transport=httpx.HTTPTransport(retries=5), trust_env=False) as client:
        assert client.get(f"{asked.endpoint}/health").status_code == 503


def test_another_certificate_takes_another_container_and_one_that_is_unfit_none(
    proxy: ContainerNginx, image: str, server: str, docker_daemon: DockerDaemon, tmp_path: Path
) -> None:
    asked = site(server, keys=KEYS, image=image, docker_host=docker_daemon.host)
    proxy.apply(asked)
    tls = certificate(tmp_path)
    (tmp_path / "other.pem").write_text("no key")
    with pytest.raises(OnecatError, match="certificate or the key"):
        proxy.apply(replace(asked, tls=replace(tls, key=str(tmp_path / "other.pem"))))
    assert status(asked) == 200
    guarded = replace(asked, tls=tls)
    proxy.apply(guarded)
    assert status(guarded) == 200


def test_an_address_that_is_taken(proxy: ContainerNginx, image: str, server: str, docker_daemon: DockerDaemon) -> None:
    asked = replace(site(server, image=image, docker_host=docker_daemon.host), listen=server)
    with pytest.raises(OnecatError, match=r"the port of proxy\.listen is in use"):
        proxy.apply(asked)
    assert not proxy.running()


def test_the_container_of_another_home_is_left_alone(
    proxy: ContainerNginx, image: str, server: str, docker_daemon: DockerDaemon, docker_client: Any, tmp_path: Path
) -> None:
    asked = site(server, keys=KEYS, image=image, docker_host=docker_daemon.host)
    proxy.apply(asked)
    other = ContainerNginx(DeploymentStore(LocalMachine(tmp_path / "other"), "demo"))
    with pytest.raises(OnecatError, match="not from this ONECAT_HOME"):
        other.apply(replace(asked, listen=f"127.0.0.1:{free_port()}"))
    other.remove()
    assert (other.running(), proxy.running(), status(asked)) == (False, True, 200)


def test_it_is_taken_where_its_image_is(image: str, docker_daemon: DockerDaemon, tmp_path: Path) -> None:
    def deployment(name: str) -> Deployment:
        proxy = Proxy(instance="container", image=name, listen=f"127.0.0.1:{free_port()}")
        return Deployment(name="demo", profile="cpu", model=Model(path="/m"), proxy=proxy)

    machine = LocalMachine(tmp_path)
    choice = choose_proxy(machine, deployment(image), docker_daemon.host)
    assert (choice.kind, choice.docker_host) == ("container", docker_daemon.host)
    assert site_for(choice, deployment(image), None).image == image
    with pytest.raises(OnecatError, match="the Docker daemon has no image onecat-test/none:1") as told:
        choose_proxy(machine, deployment("onecat-test/none:1"), docker_daemon.host)
    assert told.value.next_steps[0] == "docker pull onecat-test/none:1"


def test_releases_follow_one_another_behind_it(
    image: str, docker_daemon: DockerDaemon, docker_client: Any, tiny_model: Path, tmp_path: Path
) -> None:
    home = Home(tmp_path / "data", tmp_path / "cache")
    small = SmallDeployment(home, tiny_model, free_port(), free_port(), docker_host=docker_daemon.host)
    proxy = {"listen": f"127.0.0.1:{small.proxy_port}", "instance": "container", "image": image}
    release = small.up(proxy=proxy)
    container = docker_client.containers.get(NAME).id
    assert small.up("--max-num-seqs", "8", proxy=proxy).number == 2
    assert docker_client.containers.get(NAME).id == container
    assert status(replace(site(), listen=f"127.0.0.1:{small.proxy_port}")) == 200
    assert (release.proxy_kind, small.status().state) == ("container", "serving")
    deploy.down(small.store)
    assert docker_client.containers.list(all=True, filters={"name": NAME}) == []


def test_another_kind_of_nginx_takes_over_its_address_and_gives_it_back(
    image: str, docker_daemon: DockerDaemon, docker_client: Any, tiny_model: Path, tmp_path: Path
) -> None:
    home = Home(tmp_path / "data", tmp_path / "cache")
    small = SmallDeployment(home, tiny_model, free_port(), free_port(), docker_host=docker_daemon.host)
    boxed = {"listen": f"127.0.0.1:{small.proxy_port}", "instance": "container", "image": image}
    asked = replace(site(), listen=f"127.0.0.1:{small.proxy_port}")
    assert small.up().proxy_kind == "own"
    # A failed start: the nginx of before serves again.
    with pytest.raises(OnecatError, match="the server did not start"):
        small.up("--fail-with", "no luck", proxy=boxed)
    assert (status(asked), small.status().proxy, small.status().state) == (200, "own", "serving")
    release = small.up(proxy=boxed)
    assert (release.proxy_kind, release.strategy, status(asked)) == ("container", "recreate", 200)
    assert not any("nginx" in line and str(home.data) in line and "proxy/" in line for line in small.processes())
    # What the new one serves is known: the next change goes on from there.
    assert (small.up("--max-num-seqs", "8", proxy=boxed).strategy, status(asked)) == ("blue-green", 200)
    elsewhere = {"listen": f"127.0.0.1:{free_port()}"}
    assert (small.up(proxy=elsewhere).strategy, small.status().state) == ("blue-green", "serving")
    assert docker_client.containers.list(all=True, filters={"name": NAME}) == []
    assert status(replace(asked, listen=elsewhere["listen"])) == 200
    deploy.down(small.store)
    assert small.processes() == []
