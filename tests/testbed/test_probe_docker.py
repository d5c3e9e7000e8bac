"""The probe and a real Docker daemon: what it tells of containers and images, and a calculation in an image."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onecat.facts import Facts
from onecat.probe import ProbeOptions, collect_local
from onecat.probe.agent import core
from onecat.probe.agent.sources import smoke
from tests.testbed.docker_daemon import DockerDaemon

Observe = Callable[..., Facts]


@pytest.fixture
def observe(docker_daemon: DockerDaemon, monkeypatch: pytest.MonkeyPatch) -> Observe:
    """Observes this machine with the testbed's daemon as its Docker."""
    monkeypatch.setenv("DOCKER_HOST", docker_daemon.host)
    return lambda **options: collect_local(replace(ProbeOptions(), **options))


def test_containers_and_images_are_told_as_they_are(
    observe: Observe, docker_client: Any, base_image: str, free_port: Callable[[], int]
) -> None:
    tag = "onecat-test/vllm-labelled:1"
    dockerfile = f'FROM {base_image}\nLABEL io.onecat.profile="v100x2-pcie" registry.token="secret"\n'
    docker_client.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=tag)
    port = free_port()
    container = docker_client.containers.run(
        tag,
        ["sleep", "600"],
        name="onecat-test-observed",
        detach=True,
        shm_size="128m",
        restart_policy={"Name": "unless-stopped"},
        ports={"8000/tcp": ("127.0.0.1", port)},
        security_opt=["no-new-privileges"],
    )
    try:
        facts = observe()
    finally:
        container.remove(force=True)
        docker_client.images.remove(tag)
    docker = facts.docker
    assert docker is not None and docker.containers is not None and docker.images is not None
    info = docker_client.info()
    assert (docker.state, docker.server_version, docker.logging_driver, docker.cgroup_driver) == (
        "reachable",
        info["ServerVersion"],
        info["LoggingDriver"],
        info["CgroupDriver"],
    )
    assert docker.api_version == docker_client.version()["ApiVersion"]
    assert docker.client_version
    assert docker.log_options is not None, "the test's daemon has a settings file of its own, which its process names"
    (seen,) = [each for each in docker.containers if each.name == "onecat-test-observed"]
    assert (seen.image, seen.state, seen.shm_size, seen.ipc_mode) == (tag, "running", 128 << 20, "private")
    assert (seen.restart_policy, seen.ports, seen.privileged, seen.gpus) == ("unless-stopped", (port,), False, False)
    assert seen.security_options == ("no-new-privileges",)
    (image,) = [each for each in docker.images if tag in each.tags]
    assert image.labels == (("io.onecat.profile", "v100x2-pcie"),)
    assert facts.filesystem("docker") is not None
    assert [each.process for each in facts.listeners or () if each.port == port] == ["docker-proxy"]


def test_a_calculation_in_an_image_without_pytorch_says_what_is_missing(observe: Observe, base_image: str) -> None:
    facts = observe(smoke_image=base_image)
    (engine,) = facts.engines
    assert (engine.where, engine.torch_version) == (base_image, None)
    assert engine.python_version and engine.python_version.startswith("3.11.")
    assert engine.error == "ModuleNotFoundError: No module named 'torch'"
    assert facts.note("smoke") is None


def test_an_image_that_is_not_there_is_not_pulled(observe: Observe, docker_client: Any) -> None:
    facts = observe(smoke_image="onecat-test/nowhere:1")
    assert facts.engines == ()
    note = facts.note("smoke")
    assert note is not None and note.kind == "absent" and "nothing is pulled" in note.text


def test_a_calculation_leaves_no_container(observe: Observe, docker_client: Any, base_image: str) -> None:
    before = {each.id for each in docker_client.containers.list(all=True)}
    observe(smoke_image=base_image)
    assert {each.id for each in docker_client.containers.list(all=True)} == before


def test_a_calculation_that_hangs_is_ended_with_its_container(
    docker_daemon: DockerDaemon, docker_client: Any, base_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = "onecat-test/hangs:1"
    hang = "printf '#!/bin/sh\\nexec sleep 600\\n' > /usr/bin/python3"
    dockerfile = f"FROM {base_image}\nRUN rm /usr/bin/python3 && {hang} && chmod +x /usr/bin/python3\n"
    docker_client.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=tag)
    monkeypatch.setenv("DOCKER_HOST", docker_daemon.host)
    monkeypatch.setattr(smoke, "RUN_SECONDS", 2)
    document = core.observe(core.Machine("/", 5, [], {"smoke": tag}), {"smoke": smoke.smoke})
    assert [note["kind"] for note in document["notes"]] == ["timeout"]
    names = [each.name for each in docker_client.containers.list(all=True)]
    docker_client.images.remove(tag)
    assert not [name for name in names if name.startswith("onecat-smoke")]


@pytest.mark.engine
def test_pytorch_in_the_engines_image_describes_itself(observe: Observe, cpu_image: str) -> None:
    (engine,) = observe(smoke_image=cpu_image).engines
    assert engine.torch_version
    assert (engine.cuda_available, engine.error, engine.gpu_ok) == (False, None, None)
    assert dict(engine.packages)["torch"] == engine.torch_version
