"""One deployment on two hosts behind one nginx: real sshds, a Docker daemon of each host's own, the real command."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat.deploy.store import FLEET_LOCK, DeploymentStore
from onecat.hosts import ConnectionLostError
from tests.testbed import systemd_host as systemd_hosts
from tests.testbed.command import Onecat
from tests.testbed.conftest import need_program
from tests.testbed.docker_daemon import DockerDaemon, running_docker_daemon
from tests.testbed.operators import Operator
from tests.testbed.ports import free_port
from tests.testbed.remote_hosts import RemoteHost, running_remote_host
from tests.testbed.test_up_container import server_image
from tests.testbed.test_up_remote import Clients

__all__ = ["server_image"]
pytestmark = pytest.mark.testbed

PROFILE = """\
name: small
extends: [cpu]
summary: The small server of the tests
image: {tag: "onecat-test/openai-server:1"}
launch: {runtime: container}
"""
DEPLOYMENT = """\
name: demo
profile: ./small.yaml
model: {{path: {model}}}
hosts: [gpu1, gpu2]
addresses: {{gpu2: 127.0.0.3}}
port: {port}
proxy: {{listen: "127.0.0.1:{proxy_port}", instance: own}}
serve: {serve}
"""


class Fleet:
    """Two hosts, the person who deploys on them, and the files of that person."""

    def __init__(self, onecat: Onecat, person: Operator, folder: Path, hosts: list[RemoteHost], clients: list[Any]):
        self.onecat = onecat
        self.person = person
        self.folder = folder
        self.hosts = hosts
        self.clients = clients
        self.port = free_port()
        self.proxy_port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.proxy_port}"

    def write(self, serve: str = "{}") -> None:
        model = self.hosts[0].shared / "tiny"
        (self.folder / "onecat.yaml").write_text(
            DEPLOYMENT.format(model=model, port=self.port, proxy_port=self.proxy_port, serve=serve)
        )

    def run(self, *words: str) -> Any:
        return self.onecat(*words, cwd=self.folder, environment=self.person.environment, timeout=180)

    def containers(self) -> list[list[str]]:
        return [sorted(each.name for each in client.containers.list(all=True)) for client in self.clients]


@pytest.fixture(scope="module")
def second_daemon(docker_daemon: DockerDaemon) -> Iterator[DockerDaemon]:
    """The Docker daemon of another host, which has no image."""
    data_root = Path(tempfile.mkdtemp(prefix="onecat-test-data-"))
    try:
        with running_docker_daemon(data_root) as daemon:
            yield daemon
    finally:
        shutil.rmtree(data_root)


@pytest.fixture(scope="module")
def hosts(
    docker_client: Any,
    docker_daemon: DockerDaemon,
    second_daemon: DockerDaemon,
    server_image: str,  # noqa: F811 - a fixture
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
) -> Iterator[list[RemoteHost]]:
    image = systemd_hosts.ensure_systemd_image(docker_client)
    program = need_program("docker", "docker.io")
    folder = tmp_path_factory.mktemp("fleet")
    shared = folder / "shared"
    shutil.copytree(tiny_model, shared / "tiny")
    for path in (shared / "tiny", *(shared / "tiny").iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with contextlib.ExitStack() as stack:
        started = []
        for number, daemon in enumerate((docker_daemon, second_daemon), start=1):
            host = running_remote_host(
                docker_client,
                daemon,
                image,
                folder / f"gpu{number}",
                free_port() + 900 + number,
                name=f"gpu{number}",
                address=f"127.0.0.{number + 1}",
                docker_program=program,
                shared=shared,
            )
            started.append(stack.enter_context(host))
        yield started


@pytest.fixture
def fleet(
    hosts: list[RemoteHost],
    docker_daemon: DockerDaemon,
    second_daemon: DockerDaemon,
    onecat_with_docker: Onecat,
    tmp_path: Path,
) -> Iterator[Fleet]:
    import docker

    person = Operator(tmp_path / "home")
    person.write("".join(host.configuration() for host in hosts), "")
    folder = tmp_path / "deployment"
    folder.mkdir()
    (folder / "small.yaml").write_text(PROFILE)
    clients = [docker.DockerClient(base_url=each.host) for each in (docker_daemon, second_daemon)]
    made = Fleet(onecat_with_docker, person, folder, hosts, clients)
    made.write()
    yield made
    made.run("down")
    ours = [[name for name in names if name.startswith("onecat-demo")] for names in made.containers()]
    for client in clients:
        client.close()
    assert ours == [[], []]


def go_back_and_start_anew(fleet: Fleet) -> None:
    """`rollback` and `restart`, host after host behind the one nginx, and what becomes of the rest where one fails."""
    with Clients(fleet.endpoint) as clients:
        back = fleet.run("rollback", "--json").expect(0)
        anew = fleet.run("restart", "--host", "gpu1", "--json").expect(0)
    assert set(clients.answers) == {200}, clients.answers
    document = back.json()
    assert document["schema"] == "onecat.fleet/1"
    told = [(each["host"], each["result"], each["up"]["schema"], each["up"]["origin"]) for each in document["hosts"]]
    assert told == [(host, "up", "onecat.rollback/1", 1) for host in ("gpu1", "gpu2")]
    assert back.stderr.index("gpu1: nginx sends requests to release 3") < back.stderr.index("gpu2: going back")
    assert (anew.json()["schema"], anew.json()["release"]) == ("onecat.restart/1", 4)
    members = json.loads((fleet.hosts[0].home / "deployments/demo/traffic-own.json").read_text())["members"]
    assert [(each["host"], each["release"]) for each in members] == [("gpu2", 3), ("gpu1", 4)]

    plan = fleet.hosts[0].home / "deployments/demo/releases/0004/plan.json"
    content = plan.read_text()
    plan.write_text("{")
    failed = fleet.run("restart").expect(5)
    assert (
        "gpu2  not begun, as before" in failed.stdout and "a file that onecat has written is damaged" in failed.stderr
    )
    plan.write_text(content)


def break_a_lock(fleet: Fleet) -> None:
    """`unlock` over SSH: who holds the deployment, and without somebody to be asked nothing happens."""
    with contextlib.closing(fleet.hosts[0].connect()) as other:
        store = DeploymentStore(other, "demo")
        with pytest.raises(ConnectionLostError), store.lock("onecat up", FLEET_LOCK):
            assert "is being worked on" in fleet.run("restart").expect(4).stderr
            refused = fleet.run("unlock").expect(2)
            assert "demo on gpu1: " in refused.stderr and "runs `onecat up` since 20" in refused.stderr
            assert "nobody is there to be asked" in refused.stderr
            broken = fleet.run("unlock", "--yes").expect(0)
            assert broken.stdout.splitlines() == ["demo on gpu1: unlocked", "demo on gpu2: nobody holds the lock"]
            while True:
                other.write(f"{store.directory}/nothing", b"")
                threading.Event().wait(0.05)


def test_replicas_on_two_hosts_behind_one_nginx(fleet: Fleet) -> None:
    refused = fleet.folder / "onecat.yaml"
    text = refused.read_text()
    refused.write_text(text.replace("addresses: {gpu2: 127.0.0.3}\n", ""))
    told = fleet.run("up").expect(2)
    assert "nginx on gpu1 cannot reach the server on gpu2 at 127.0.0.1" in told.stderr
    refused.write_text(text)

    planned = fleet.run("up", "--dry-run", "--json").expect(0)
    plan = planned.json()
    assert "gpu2 lacks the image onecat-test/openai-server:1, which would be sent from here" in planned.stderr
    assert (plan["order"], plan["nginx"]) == ([["gpu1", "gpu2"]], "gpu1")
    up = fleet.run("up", "--json").expect(0)
    assert "gpu2: sending onecat-test/openai-server:1 to gpu2" in up.stderr, "the second host had no image"
    document = up.json()
    assert [(each["host"], each["result"]) for each in document["hosts"]] == [("gpu1", "up"), ("gpu2", "up")]
    again = fleet.run("up", "--json").expect(0).json()
    assert [each["result"] for each in again["hosts"]] == ["unchanged", "unchanged"]

    statuses = fleet.run("status", "--json").expect(0).json()["deployments"]
    assert [(each["host"], each["state"]) for each in statuses] == [("gpu1", "serving"), ("gpu2", "serving")]
    with Clients(fleet.endpoint) as clients:
        fleet.clients[0].containers.get("onecat-demo-0001").kill()
        threading.Event().wait(1)
    assert 200 in clients.answers and clients.answers[-1] == 200, "the other host answers"
    assert set(clients.answers) <= {200, 502}

    fleet.write("{max-num-seqs: 3}")
    with Clients(fleet.endpoint) as clients:
        changed = fleet.run("up", "--json").expect(0).json()
    assert [each["result"] for each in changed["hosts"]] == ["up", "up"]
    assert set(clients.answers) == {200}, clients.answers

    assert "a canary stands beside one server" in fleet.run("up", "--canary", "10%").expect(2).stderr
    for verb in ("canary", "promote", "abort"):
        assert "the deployment has several hosts" in fleet.run(verb).expect(2).stderr
    go_back_and_start_anew(fleet)
    break_a_lock(fleet)

    configuration = "".join(host.configuration() for host in fleet.hosts)
    fleet.person.write(configuration.replace(f"Port {fleet.hosts[0].ssh.port}\n", "Port 1\n", 1), "")
    gone = fleet.run("down").expect(3)
    assert [line.split(":")[0] for line in gone.stdout.splitlines()[1:]] == [
        "  gpu1  cannot be reached",
        "  gpu2  stopped",
    ]
    assert "its nginx may go on asking gpu2 in vain" in gone.stderr
    fleet.person.write(configuration, "")
    down = fleet.run("down", "--json").expect(0).json()
    assert (down["schema"], [(each["host"], each["result"]) for each in down["hosts"]]) == (
        "onecat.fleet/1",
        [("gpu1", "down"), ("gpu2", "unchanged")],
    )
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{fleet.endpoint}/health", trust_env=False)


def test_preflight_asks_each_host_over_ssh_and_nginx_where_it_runs(fleet: Fleet) -> None:
    fleet.run("up").expect(0)
    serving = fleet.run("status", "--json").expect(0).json()["deployments"]
    done = fleet.run("preflight", "--json", "--skip", "preflight.concurrency,preflight.utilization")
    first, second = done.json()["hosts"]
    wrong = [(each["check"], each["title"], each["evidence"]) for each in first["findings"] if each["status"] == "fail"]
    assert wrong == []
    assert [(each["name"], each["reachable"], each["release"]) for each in (first, second)] == [
        (each["host"], True, each["release"]) for each in serving
    ]
    of_first, of_second = (
        {each["check"].partition(".")[2]: (each["status"], each["title"]) for each in host["findings"]}
        for host in (first, second)
    )
    for found in (of_first, of_second):
        passed = {name for name, (status, _) in found.items() if status == "pass"}
        assert passed >= {"health", "answer", "determinism", "restart", "api-key", "log", "shared-memory", "checksums"}
        assert found["restart"][1].startswith("By Docker, ")
        assert found["shared-memory"][1] == "/dev/shm of the container has 256 MiB, as planned"
        # The image holds no vLLM whose parser could be asked.
        assert found["arguments"][1].endswith("flags fit onecat's schema of vllm 0.27.1 only")
    assert of_first["nginx-health"][0] in ("pass", "warn")
    assert of_second["nginx-health"] == ("skip", "Not checked: nginx runs on gpu1, where it is looked at")
    page = fleet.run("preflight", "--quick", "--only", "preflight.health,preflight.nginx-health").expect(0).stdout
    assert [line for line in page.splitlines() if line.startswith("demo release")] == [
        line
        for each in serving
        for line in page.splitlines()
        if line.startswith(f"demo release {each['release']} on {each['host']} (")
    ]

    configuration = "".join(host.configuration() for host in fleet.hosts)
    fleet.person.write(configuration.replace(f"Port {fleet.hosts[1].ssh.port}\n", "Port 1\n", 1), "")
    lost = fleet.run("preflight", "--quick", "--only", "preflight.health", "--json").expect(3).json()
    fleet.person.write(configuration, "")
    assert [each["reachable"] for each in lost["hosts"]] == [True, False]
    assert lost["hosts"][1]["reason"]
