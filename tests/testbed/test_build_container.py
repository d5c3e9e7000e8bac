"""`onecat build` of images with a real dockerd, and the image that it makes."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onecat.config import load_profile
from onecat.images import render_context
from onecat.paths import Home
from tests.testbed.command import Onecat
from tests.testbed.docker_daemon import DockerDaemon

BUILD = ("build", "--profile", "cpu", "--runtime", "container", "--json")
ASK = """
import json, time, urllib.request
for _ in range(600):
    try:
        urllib.request.urlopen("http://127.0.0.1:8000/health")
        break
    except OSError:
        time.sleep(0.5)
def ask(headers):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "logprobs": True}
    request = urllib.request.Request(
        "http://127.0.0.1:8000/v1/chat/completions", json.dumps(body | {"ignore_eos": True}).encode(),
        {"Content-Type": "application/json"} | headers)
    try:
        return 200, json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return error.code, None
print(json.dumps([ask({}), ask({"Authorization": "Bearer s3cret"})]))
"""

pytestmark = pytest.mark.testbed


@pytest.fixture
def engine_command(engine_home: Home, docker_daemon: DockerDaemon) -> Onecat:
    return Onecat(home=engine_home.data, cache=engine_home.cache, docker_host=docker_daemon.host)


@pytest.mark.engine
def test_a_second_build_is_up_to_date(engine_command: Onecat, cpu_image: str) -> None:
    started = time.monotonic()
    document = engine_command(*BUILD).expect(0).json()
    assert time.monotonic() - started < 5
    assert document["built"] is False and document["tag"] == cpu_image
    assert document["context"] == f"sha256:{render_context(load_profile('cpu')).digest}"


@pytest.mark.engine
def test_the_image_is_small_ordinary_and_labelled(docker_client: Any, cpu_image: str) -> None:
    image = docker_client.images.get(cpu_image)
    settings = image.attrs["Config"]
    assert settings["User"] == "10001:10001" and "8000/tcp" in settings["ExposedPorts"]
    assert settings["Labels"]["io.onecat.profile"] == "cpu"
    assert settings["Labels"]["org.opencontainers.image.version"] == "0.27.1"
    assert not [text for text in settings["Env"] if "KEY" in text]
    assert image.attrs["Size"] < 2.4e9
    look = "ls /build /wheels 2>&1; find /opt/onecat -name 'pip-*.dist-info' -o -name '*.whl'; id -u"
    found = docker_client.containers.run(cpu_image, ["-c", look], entrypoint="sh", remove=True, network_mode="none")
    assert found.decode().splitlines()[-1] == "10001"
    assert "dist-info" not in found.decode() and ".whl" not in found.decode()
    # An image of an earlier context may be there without its tag: a release may still run from it.
    context = f"io.onecat.context={settings['Labels']['io.onecat.context']}"
    assert not docker_client.images.list(filters={"dangling": True, "label": context})


@pytest.mark.engine
def test_a_container_without_network_rights_or_writable_root_answers(
    docker_client: Any, cpu_image: str, tiny_model: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    for path in (key, *tiny_model.iterdir()):
        path.chmod(0o644)
    for path in (tiny_model, tiny_model.parent, tmp_path):
        path.chmod(0o755)
    profile = load_profile("cpu")
    container = docker_client.containers.run(
        cpu_image,
        ["/model", "--host", "127.0.0.1", "--port", "8000", "--served-model-name", "tiny"]
        + ["--max-model-len", "512", "--dtype", "float32", "--enforce-eager"],
        detach=True,
        network_mode="none",
        read_only=True,
        user="65534:65534",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        init=True,
        shm_size=profile.launch.container.shm_size_mib << 20,
        tmpfs={"/tmp": "rw,exec,nosuid,nodev,mode=1777"},
        environment={"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
        volumes={
            str(tiny_model): {"bind": "/model", "mode": "ro"},
            str(key): {"bind": "/run/secrets/api_key", "mode": "ro"},
        },
    )
    try:
        asked = container.exec_run(["python", "-c", ASK])
        assert asked.exit_code == 0, container.logs(tail=40).decode()
        (refused, _), (accepted, answer) = json.loads(asked.output)
        assert (refused, accepted) == (401, 200), container.logs(tail=40).decode()
        assert len(answer["choices"][0]["logprobs"]["content"]) == 4
        container.stop(timeout=30)
        container.reload()
        assert container.attrs["State"]["ExitCode"] == 0
        assert b"s3cret" not in container.logs()
    finally:
        container.remove(force=True)


def test_a_base_image_that_cannot_be_had_is_named(onecat_with_docker: Onecat) -> None:
    refused = onecat_with_docker("build", "--profile", "h200", "--json", timeout=120).expect(3)
    assert "vllm/vllm-openai:v0.27.1 is not on the Docker engine and cannot be pulled" in refused.stderr
    assert "docker pull" in refused.stderr and "Traceback" not in refused.stderr
    assert refused.json()["exit_code"] == 3


def test_a_socket_of_others_names_the_group(onecat_with_docker: Onecat, run_unprivileged: Callable[..., Any]) -> None:
    refused = onecat_with_docker("build", "--profile", "h200", unprivileged=True).expect(3)
    assert "may not talk to the Docker engine" in refused.stderr and "usermod" in refused.stderr


def test_no_daemon_is_told_before_anything_is_downloaded(onecat: Onecat) -> None:
    refused = onecat(*BUILD).expect(3)
    assert "no Docker engine at this socket" in refused.stderr
    assert "download" not in refused.stderr


def test_the_rendered_context_builds_by_hand_as_well(
    docker_client: Any, base_image: str, onecat: Onecat, tmp_path: Path
) -> None:
    """The stock recipe on a local stand-in for its base: what --render-only writes is all that a builder needs."""
    onecat("build", "--profile", "h200", "--render-only", "--output", tmp_path / "context").expect(0)
    dockerfile = tmp_path / "context" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace("vllm/vllm-openai:v0.27.1", base_image))
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(tmp_path / "context", arcname=".")
    archive.seek(0)
    image, _ = docker_client.images.build(fileobj=archive, custom_context=True, rm=True, tag="onecat-test/stock:1")
    try:
        assert image.attrs["Config"]["Entrypoint"] == ["/usr/local/bin/onecat-entrypoint"]
        command = ["-c", "test -x /usr/local/bin/onecat-entrypoint && id -un"]
        said = docker_client.containers.run(image.id, command, entrypoint="sh", remove=True, network_mode="none")
        assert said.decode().strip() == "onecat"
    finally:
        docker_client.images.remove("onecat-test/stock:1")
