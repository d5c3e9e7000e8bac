"""`up`, `status`, `logs` and `down` with a real dockerd; the server is the small one in an image of its own."""

from __future__ import annotations

import io
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat import deploy
from onecat.cli import quickstart
from onecat.deploy.cache_volume import IMAGE_LABEL, remove_unused, volume_labels, volume_name
from onecat.deploy.container import home_identity
from onecat.errors import ExitCode, OnecatError
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.server_image import IMAGE, build_server_image

KEY = "sk-Xq7-nobody-may-see-this"


@pytest.fixture(scope="module")
def server_image(docker_client: Any, base_image: str) -> str:
    return build_server_image(docker_client, base_image)


@pytest.fixture
def boxed(
    onecat_home: Path,
    tiny_model: Path,
    free_port: Callable[[], int],
    nginx: str,
    docker_daemon: DockerDaemon,
    server_image: str,
    docker_client: Any,
) -> Iterator[SmallDeployment]:
    for path in tiny_model.iterdir():
        path.chmod(path.stat().st_mode | stat.S_IROTH)
    home = Home(onecat_home, onecat_home / "cache")
    deployment = SmallDeployment(home, tiny_model, free_port(), free_port(), docker_daemon.host, server_image)
    yield deployment
    if (home.deployments / "demo").exists():
        deploy.down(deployment.store)
    assert ours(docker_client) == []
    assert deployment.processes() == []


def ours(docker_client: Any) -> list[Any]:
    return list(docker_client.containers.list(all=True, filters={"label": "io.onecat.deployment=demo"}))


def ask(url: str, key: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)


def test_a_completion_through_nginx_from_a_container_without_rights(boxed: SmallDeployment, docker_client: Any) -> None:
    release = boxed.up()
    assert ask(release.endpoint).status_code == 200
    found = boxed.status()
    assert (found.state, found.runtime, found.container) == ("serving", "container", "onecat-demo-0001")
    assert found.pid is not None
    (container,) = ours(docker_client)
    host = container.attrs["HostConfig"]
    assert (host["Privileged"], host["CapDrop"], host["ReadonlyRootfs"], host["Init"]) == (False, ["ALL"], True, True)
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["RestartPolicy"] == {"Name": "unless-stopped", "MaximumRetryCount": 0}
    assert host["PortBindings"] == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(boxed.port)}]}
    assert container.exec_run(["id", "-u"]).output.strip() == b"65534"
    assert container.exec_run(["touch", "/x"]).exit_code != 0
    assert container.exec_run(["touch", "/models/tiny/x"]).exit_code != 0
    assert container.exec_run(["touch", "/tmp/x"]).exit_code == 0
    assert container.labels["io.onecat.release"] == "1"
    assert boxed.up().number == 1
    assert boxed.reported[-1].endswith("nothing to do")


def test_a_container_that_was_changed_or_removed_by_hand_is_told(boxed: SmallDeployment, docker_client: Any) -> None:
    boxed.up()
    assert deploy.compare_deployment(None, boxed.store).drift == (), "nobody has touched it"
    (container,) = ours(docker_client)
    container.update(mem_limit="512m", memswap_limit="1g")
    (changed,) = deploy.compare_deployment(None, boxed.store).drift
    assert changed.what == "container onecat-demo-0001 is not as it was made"
    assert changed.diff == ("- HostConfig.Memory: 0", "+ HostConfig.Memory: 536870912")
    container.remove(force=True)
    (removed,) = deploy.compare_deployment(None, boxed.store).drift
    assert removed.what == "container onecat-demo-0001 was removed by hand"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--fail-with", "torch.OutOfMemoryError: CUDA out of memory."), "The GPU's memory does not hold"),
        (("--answer", "repeated"), "one token 8 times"),
    ],
)
def test_a_failed_start_leaves_no_container_and_keeps_its_log(
    boxed: SmallDeployment, docker_client: Any, words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(OnecatError) as raised:
        boxed.up(*words)
    assert told in raised.value.found
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert ours(docker_client) == []
    assert boxed.status().state == "failed"
    assert deploy.last_lines(boxed.store, 50)


def test_the_container_before_a_failed_one_serves_again(boxed: SmallDeployment, docker_client: Any) -> None:
    boxed.up()
    with pytest.raises(OnecatError):
        boxed.up("--answer", "nan")
    assert (boxed.status().state, boxed.status().release) == ("serving", 1)
    assert [container.name for container in ours(docker_client)] == ["onecat-demo-0001"]


def test_a_silent_container_is_given_up_and_a_busy_one_is_not(boxed: SmallDeployment) -> None:
    with pytest.raises(OnecatError, match="it hangs"):
        boxed.up("--hang", start={"silence_seconds": 5})
    boxed.up("--busy", "8", start={"silence_seconds": 5})
    assert boxed.status().state == "serving"


def test_the_key_reaches_the_container_as_a_file_alone(
    boxed: SmallDeployment, docker_client: Any, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY)
    secrets = {"api_key": {"file": str(tmp_path / "key")}}
    release = boxed.up(secrets=secrets)
    assert ask(release.endpoint).status_code == 401
    assert ask(release.endpoint, KEY).status_code == 200
    assert quickstart._ask(release, boxed.deployment(secrets=secrets))
    (container,) = ours(docker_client)
    assert KEY not in str(container.attrs)
    assert KEY not in container.logs().decode()
    held = [path for path in boxed.home.data.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert held == [Path(release.directory) / "secrets" / "api_key"]
    assert held[0].stat().st_mode & 0o777 == 0o400
    deploy.down(boxed.store)
    assert not held[0].exists()


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (KEY, 0o600, "onecat: user 65534 cannot read /run/secrets/api_key: not starting without the API key"),
        (" \n", 0o644, "onecat: /run/secrets/api_key is empty: not starting without the API key"),
    ],
)
def test_a_key_that_cannot_be_had_is_no_server_without_one(
    docker_client: Any, server_image: str, tmp_path: Path, text: str, mode: int, told: str
) -> None:
    key = tmp_path / "key"
    key.write_text(text)
    key.chmod(mode)
    container = docker_client.containers.run(
        server_image,
        ["/models/tiny", "--port", "8000"],
        detach=True,
        network_mode="none",
        user="65534:65534",
        volumes={str(key): {"bind": "/run/secrets/api_key", "mode": "ro"}},
    )
    try:
        assert container.wait(timeout=30)["StatusCode"] == 78
        assert container.logs(stdout=False).decode().splitlines()[-1] == told
    finally:
        container.remove(force=True)


def test_a_container_of_another_home_is_left_alone(boxed: SmallDeployment, docker_client: Any, tmp_path: Path) -> None:
    boxed.up()
    (mine,) = ours(docker_client)
    other = replace(boxed.with_home(tmp_path / "other-home"), port=boxed.port + 1)
    with pytest.raises(OnecatError) as raised:
        other.up(proxy={"kind": "none"})
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert raised.value.found == (
        f"another container is called onecat-demo-0001, and not from this ONECAT_HOME: {mine.short_id} (running)"
    )
    assert other.status().state == "failed"
    deploy.down(other.store)
    assert [container.id for container in ours(docker_client)] == [mine.id]
    assert boxed.status().state == "serving"


def test_a_left_over_of_ones_own_makes_room(boxed: SmallDeployment, docker_client: Any) -> None:
    boxed.up()
    (old,) = ours(docker_client)
    shutil.rmtree(boxed.home.deployments / "demo" / "releases")
    (boxed.home.deployments / "demo" / "deployment.json").unlink()
    os.kill(int((boxed.home.deployments / "demo" / "proxy" / "nginx.pid").read_text()), signal.SIGTERM)
    old.stop(timeout=1)
    boxed.up()
    (new,) = ours(docker_client)
    assert (new.name, new.id == old.id) == (old.name, False)


def test_logs_and_down(boxed: SmallDeployment, docker_client: Any) -> None:
    boxed.up()
    assert any("Application startup complete" in line for line in deploy.last_lines(boxed.store, 50))
    following = deploy.follow_log(boxed.store, 50)
    followed = [next(following)]
    assert deploy.down(boxed.store) is True
    followed += following
    assert any("Application startup complete" in line for line in followed)
    assert ours(docker_client) == []
    assert list(deploy.follow_log(boxed.store, 50)) == deploy.last_lines(boxed.store, 50)
    assert boxed.status().state == "stopped"
    assert any("Application startup complete" in line for line in deploy.last_lines(boxed.store, 50))
    assert deploy.down(boxed.store) is False


def test_a_missing_image_names_the_command_that_builds_it(boxed: SmallDeployment) -> None:
    boxed.image = "onecat-test/no-such-image:1"
    with pytest.raises(OnecatError) as raised:
        boxed.up()
    assert raised.value.next_steps == ("onecat build --profile cpu",)
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert not [path for path in boxed.home.data.rglob("*") if path.is_file()]


def test_a_docker_that_is_not_there(boxed: SmallDeployment) -> None:
    boxed.docker_host = "unix:///nonexistent/docker.sock"
    with pytest.raises(OnecatError) as raised:
        boxed.up()
    assert raised.value.code == ExitCode.UNREACHABLE
    assert not [path for path in boxed.home.data.rglob("*") if path.is_file()]


def test_a_docker_socket_without_permission(
    boxed: SmallDeployment, run_unprivileged: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    import sys

    program = f"""
import sys
from pathlib import Path
from onecat.errors import OnecatError
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
home = Path("/tmp/onecat-test-nobody-{time.monotonic_ns()}")
small = SmallDeployment(
    Home(home, home), Path({str(boxed.model)!r}), {boxed.port}, {boxed.proxy_port}, {boxed.docker_host!r}, {IMAGE!r}
)
try:
    small.up()
except OnecatError as error:
    print(error.found, [path for path in home.rglob("*") if path.is_file()])
    sys.exit(int(error.code))
"""
    result = run_unprivileged([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    assert result.stdout.strip() == "this user may not talk to the Docker engine []", result.stderr
    assert result.code == ExitCode.UNREACHABLE


CACHING = """
FROM {image}
RUN mkdir --parents /var/cache/onecat/triton && chmod --recursive 1777 /var/cache/onecat
ENV TRITON_CACHE_DIR=/var/cache/onecat/triton
LABEL version={version}
"""


@pytest.fixture(scope="module")
def caching_images(docker_client: Any, server_image: str) -> list[str]:
    """Two images that keep caches as ours do."""
    tags = []
    for version in (1, 2):
        dockerfile = io.BytesIO(CACHING.format(image=server_image, version=version).encode())
        docker_client.images.build(fileobj=dockerfile, tag=f"onecat-test/caching:{version}", rm=True)
        tags.append(f"onecat-test/caching:{version}")
    return tags


def test_compiled_kernels_outlive_the_container_and_go_with_the_last_release_of_their_image(
    boxed: SmallDeployment, docker_client: Any, caching_images: list[str]
) -> None:
    first, second = (replace(boxed, image=image) for image in caching_images)
    home = home_identity(boxed.machine)
    others = docker_client.volumes.create(
        "onecat-cache-of-others", labels={**volume_labels("sha256:0", "demo", "another home")}
    )

    def volumes() -> set[str]:
        return {each.name for each in docker_client.volumes.list() if each.name.startswith("onecat-cache-")}

    try:
        first.up()
        (container,) = ours(docker_client)
        (mount,) = [each for each in container.attrs["Mounts"] if each["Type"] == "volume"]
        image_id = docker_client.images.get(caching_images[0]).id
        name = volume_name(image_id, "demo", home)
        assert (mount["Name"], mount["Destination"]) == (name, "/var/cache/onecat")
        assert docker_client.volumes.get(name).attrs["Labels"] == volume_labels(image_id, "demo", home)
        assert container.exec_run(["touch", "/var/cache/onecat/triton/kernel"]).exit_code == 0
        assert container.exec_run(["id", "-u"]).output.strip() == b"65534"

        deploy.down(first.store)
        first.up()
        (container,) = ours(docker_client)
        assert container.exec_run(["test", "-e", "/var/cache/onecat/triton/kernel"]).exit_code == 0

        second.up()
        newer = volume_name(docker_client.images.get(caching_images[1]).id, "demo", home)
        assert volumes() == {name, newer, others.name}, "one may go back to a release that is kept"
        for release in second.store.releases()[:-1]:
            shutil.rmtree(release.directory)
        assert remove_unused(second.machine, second.store.releases(), "demo", home, boxed.docker_host) == (name,)
        assert volumes() == {newer, others.name}
    finally:
        deploy.down(second.store)
        for volume in docker_client.volumes.list(filters={"label": IMAGE_LABEL}):
            volume.remove()
