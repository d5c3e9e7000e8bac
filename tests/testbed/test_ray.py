"""One model across hosts: two real Ray nodes from onecat's own commands, each a container of the testbed's dockerd.

Both containers have this machine's network, as on two hosts; here they need different addresses and ports. vLLM itself
refuses Ray on a CPU ("current platform cpu does not support ray"), so a stand-in places the workers as vLLM does.
"""

from __future__ import annotations

import json
import re
import socket
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat import deploy
from onecat.deploy.ray_machines import with_nodes
from onecat.deploy.ray_node import answers
from onecat.deploy.ray_server import NODES_FILE, RayServer
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import LocalMachine
from onecat.paths import Home
from onecat.planner.ray import TOKEN_MOUNT, RayCluster, RayNode, RayPorts
from onecat.planner.records import ContainerPlan, Layout, Plan
from tests.testbed.deployments import SERVER, SmallDeployment
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.server_image import build_from

IMAGE = "onecat-test/ray:2.60.0"
STAND_IN = Path(__file__).with_name("ray_stand_in.py")
DOCKERFILE = """
FROM {base}
RUN pip install --quiet --no-cache-dir --no-compile "ray[default]==2.60.0"
COPY openai_server.py ray_stand_in.py /srv/
ENTRYPOINT ["python3", "-u", "/srv/ray_stand_in.py"]
"""


@pytest.fixture(scope="module")
def ray_image(docker_client: Any, base_image: str) -> str:
    files = {
        "Dockerfile": DOCKERFILE.format(base=base_image).encode(),
        SERVER.name: SERVER.read_bytes(),
        STAND_IN.name: STAND_IN.read_bytes(),
    }
    build_from(docker_client, IMAGE, files)
    return IMAGE


class Host(LocalMachine):
    """This machine as one of several hosts, with a directory and a name of its own."""

    def __init__(self, name: str, data: Path) -> None:
        super().__init__(data)
        self.name = name


class RayDeployment(SmallDeployment):
    cluster: RayCluster

    @property
    def machine(self) -> Any:
        return with_nodes(self.host("head"), self.host)

    def host(self, name: str) -> Host:
        return Host(name, self.home.data.with_name(f"home-{name}"))

    def plan(self, *words: str) -> Plan:
        plan = super().plan("--tensor-parallel-size", "1", "--pipeline-parallel-size", "2", *words)
        assert isinstance(plan.container, ContainerPlan)
        return replace(plan, layout=Layout(1, 2))

    def up(self, *words: str, launcher: Any = None, **changes: Any) -> deploy.Release:
        values = {"hosts": ["head", "other"], "ray": {}, "proxy": {"kind": "none"}, "start": {"silence_seconds": 120}}
        request = deploy.UpRequest(
            self.deployment(**{**values, **changes}),
            self.profile(),
            self.plan(*words),
            docker_host=self.docker_host,
            cluster=self.cluster,
        )
        return deploy.up(request, self.machine, self.report)


@pytest.fixture
def across(
    onecat_home: Path,
    tiny_model: Path,
    free_port: Callable[[], int],
    docker_daemon: DockerDaemon,
    ray_image: str,
    docker_client: Any,
) -> Iterator[RayDeployment]:
    for path in tiny_model.iterdir():
        path.chmod(path.stat().st_mode | stat.S_IROTH)
    home = Home(onecat_home.with_name("home-head"), onecat_home / "cache")
    deployment = RayDeployment(home, tiny_model, free_port(), free_port(), docker_daemon.host, ray_image)
    bridge = docker_daemon.bridge_address.partition("/")[0]
    head = RayNode("head", "127.0.0.2", "lo", 1, RayPorts(16379))
    # Not the head's interface: what each node gets must be its own.
    other = RayNode("other", bridge, docker_daemon.bridge, 1, RayPorts(17379))
    deployment.cluster = RayCluster((head, other))
    yield deployment
    if (home.deployments / "demo").exists():
        deploy.down(deployment.store)
    assert ours(docker_client) == []


def ours(docker_client: Any) -> list[Any]:
    return list(docker_client.containers.list(all=True, filters={"label": "io.onecat.deployment=demo"}))


def end_worker(container: Any) -> None:
    """End the stand-in's worker in a node: from then on vLLM does without it."""
    words = "for p in /proc/[0-9]*; do grep -qs ^ray::RayWorkerProc $p/cmdline && kill -9 ${p#/proc/}; done; true"
    container.exec_run(["sh", "-c", words])


def test_two_nodes_form_a_cluster_and_the_server_has_a_worker_on_each(
    across: RayDeployment, docker_client: Any
) -> None:
    """And one that does without a worker on each, as vLLM does on a CPU, is not accepted."""
    release = across.up()
    head, other = across.cluster.nodes
    assert (release.service, release.host_name) == ("ray", "head")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    answer = httpx.post(f"{release.endpoint}/v1/chat/completions", json=body, trust_env=False, timeout=30)
    assert answer.status_code == 200

    containers = {each.name: each for each in ours(docker_client)}
    assert set(containers) == {"onecat-demo-0001", "onecat-demo-0001-other"}
    for container in containers.values():
        host = container.attrs["HostConfig"]
        assert (host["NetworkMode"], host["Privileged"], host["CapDrop"]) == ("host", False, ["ALL"])
        assert (host["ReadonlyRootfs"], host["ShmSize"] > 2**30) == (True, True)
        assert container.exec_run(["id", "-u"]).output.strip() == b"65534"

    inside = containers["onecat-demo-0001"]
    server = RayServer(across.machine, release.directory)
    dashboard = f"--address=http://127.0.0.1:{head.ports.dashboard}"
    with ThreadPoolExecutor() as pool:  # each takes seconds, of which most are spent waiting
        listing = pool.submit(inside.exec_run, ["ray", "list", "nodes", "--format=json", dashboard])
        asking = pool.submit(
            inside.exec_run,
            ["ray", "status", f"--address={across.cluster.address}"],
            environment={"RAY_AUTH_MODE": "disabled"},
        )
        workers = server.workers()
    listed, stranger = listing.result(), asking.result()
    nodes = json.loads(listed.output[listed.output.index(b"[") :])
    assert {(each["node_ip"], each["state"], each["is_head_node"]) for each in nodes} == {
        (head.address, "ALIVE", True),
        (other.address, "ALIVE", False),
    }
    assert all(each["resources_total"]["GPU"] == 1.0 for each in nodes)
    assert {(each["class"], each["node"]) for each in workers} == {
        ("RayWorkerProc", head.address),
        ("RayWorkerProc", other.address),
    }

    lines = list(server.lines())
    assert set(lines) <= set(server.last_lines(len(lines) + 400))
    told = [json.loads(line.partition("worker: ")[2]) for line in lines if " worker: " in line]
    assert {(each["node"], each["VLLM_HOST_IP"], each["NCCL_SOCKET_IFNAME"]) for each in told} == {
        (head.address, head.address, "=lo"),
        (other.address, other.address, f"={other.interface}"),
    }
    assert any("[other] " in line and "Ray runtime started" in line for line in lines)
    assert any(re.search(r"node \S+ joined with 1 GPUs \(2 of 2\)", line) for line in lines)

    # The token is in files that the containers' user alone reads, new for each start, and without it nobody is let in.
    documents = json.loads(Path(release.directory, NODES_FILE).read_text())["nodes"]
    files = [Path(each["directory"], "secrets", "ray_token") for each in documents]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o400}
    (token,) = {each.read_text() for each in files}
    assert all(token not in json.dumps(each.attrs) for each in containers.values())
    assert all(token not in line for line in lines)
    assert b"Authentication token is missing or incorrect" in stranger.output and stranger.exit_code != 0
    assert inside.exec_run(["cat", TOKEN_MOUNT]).output.decode() == token

    assert server.state().condition == "running"
    end_worker(containers["onecat-demo-0001-other"])
    with pytest.raises(OnecatError, match="vLLM runs no worker on other"):
        server.accept()

    assert deploy.down(across.store) is True
    assert ours(docker_client) == []
    assert not any(each.exists() for each in files)
    assert not answers(across.cluster.address)


def test_a_node_that_does_not_start_ends_all(across: RayDeployment, docker_client: Any) -> None:
    _, other = across.cluster.nodes
    port = other.ports.of_every_node["--node-manager-port"]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", port))  # noqa: S104
        # Too late to be seen beforehand.
        across.reactions["starting release"] = taken.listen
        with pytest.raises(OnecatError) as raised:
            across.up()
        assert raised.value.code == ExitCode.ROLLED_BACK
        told = str(raised.value.found) + str(raised.value.details)
        assert f"listens on ports that Ray needs on this host: --node-manager-port={port}" in told
        assert ours(docker_client) == []

        with pytest.raises(OnecatError, match=f"port {port} is in use") as raised:
            across.up()
    assert "ray.port" in str(raised.value.where)
    assert len(across.store.releases()) == 1, "nothing was changed"
