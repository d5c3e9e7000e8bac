"""`onecat build --on HOST`: a real sshd, a real docker command on the host, the testbed's Docker engine behind it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.command import Onecat
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.operators import Operator
from tests.testbed.ssh_host import USER, run_inside, running_ssh_host
from tests.testbed.test_builders import buildkit_path

pytestmark = pytest.mark.testbed

PROFILE = """\
name: remote
summary: The stock recipe on a base image of the host
hardware: {{accelerator: none}}
engine: {{name: vllm, version: 0.27.1}}
image: {{recipe: vllm-stock, base: "{base}", tag: "onecat-test/remote:1"}}
launch: {{runtime: container, runtimes: [container]}}
doctor: {{}}
sources: ["https://docs.docker.com/build/"]
"""


def test_a_build_on_a_host_leaves_the_image_there_and_nothing_here(
    docker_client: Any,
    docker_daemon: DockerDaemon,
    ssh_image: str,
    base_image: str,
    onecat: Onecat,
    tmp_path: Path,
) -> None:
    docker = buildkit_path(docker_daemon.host).partition(":")[0]
    volumes = [f"{docker_daemon.socket}:/var/run/docker.sock", f"{docker}/docker:/opt/docker:ro"]
    person = Operator(tmp_path / "home")
    profile = tmp_path / "remote.yaml"
    profile.write_text(PROFILE.format(base=base_image))
    environment = {**person.environment, "PATH": buildkit_path(docker_daemon.host)}
    build = ("build", "--profile", profile, "--on", "gpu1", "--json")
    with running_ssh_host(docker_client, ssh_image, tmp_path / "gpu1", volumes=volumes) as host:
        container = docker_client.containers.get(host.container)
        configuration = f"Host gpu1\n  HostName {host.address}\n  User {USER}\n  IdentityFile {host.key}\n"
        person.write(configuration, "")
        unknown = onecat(*build, environment=environment).expect(3)
        assert "key is not in known_hosts" in unknown.stderr, "a host that nobody has vouched for gets no context"
        person.write(configuration, host.known_hosts.read_text().replace(host.address, f"gpu1,{host.address}"))

        absent = onecat(*build, environment=environment).expect(3)
        assert "there is no docker command on the host" in absent.stderr
        run_inside(container, "ln", "-s", "/opt/docker", "/usr/local/bin/docker")
        run_inside(container, "chmod", "711", "/var/run")
        group = run_inside(container, "stat", "--format", "%g", "/var/run/docker.sock").strip()
        forbidden = onecat(*build, environment=environment).expect(3)
        assert "may not talk to the Docker engine on the host" in forbidden.stderr
        if group != "0":
            run_inside(container, "groupadd", "--non-unique", "--gid", group, "engine")
        run_inside(container, "usermod", "--append", "--groups", "root" if group == "0" else "engine", USER)

        sockets = set(Path(tempfile.gettempdir()).glob("onecat-gpu1-*"))
        plan = onecat(*build, "--plan", environment=environment).expect(0).json()["plan"]
        assert plan["host"]["memory_bytes"] == docker_client.info()["MemTotal"]
        assert plan["builder"] == "buildkit"
        try:
            for builder in ("classic", "buildkit"):
                built = onecat(*build, "--builder", builder, environment=environment, timeout=180).expect(0)
                document = built.json()
                assert (document["built"], document["builder"]) == (True, builder)
                assert docker_client.images.get("onecat-test/remote:1").id == document["image"]
                again = onecat(*build, environment=environment).expect(0).json()
                assert again["built"] is False and again["image"] == document["image"]
                docker_client.images.remove("onecat-test/remote:1")
        finally:
            for image in docker_client.images.list("onecat-test/remote"):
                docker_client.images.remove(image.id, force=True)
        assert set(Path(tempfile.gettempdir()).glob("onecat-gpu1-*")) == sockets
        search = "grep --files-with-matches 'dial-std[i]o' /proc/[0-9]*/cmdline 2>/dev/null || true"
        assert run_inside(container, "sh", "-c", search) == "", "a connection is still open"
