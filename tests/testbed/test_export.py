"""Exports read by the programs they are for: Docker Compose, Podman's generator, systemd-analyze and nginx."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat.config import list_profiles
from onecat.deploy.export import Options, Request, write_files
from onecat.paths import Home
from tests.testbed.cache import Cache
from tests.testbed.debian_packages import unpacked
from tests.testbed.deployments import SmallDeployment
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.test_up_container import server_image
from tests.unit.deploy.export.examples import KEY, NASTY, exported, request
from tests.unit.deploy.test_units import unquoted

__all__ = ["server_image"]

SECRET = "sk-Xq7-nobody-may-see-this"
NGINX_IMAGE = "onecat-test/nginx:1"
RICH = {
    "secrets": KEY,
    "env": NASTY,
    "container": {"memory_gib": 64, "cpus": 7.5},
    "proxy": {
        "keys_file": "/etc/onecat/keys",
        "tls": {"certificate": "/etc/ssl/c.pem", "key": "/etc/ssl/k.pem"},
        "limits": {"per": "key", "requests_per_second": 5, "connections": 10},
    },
}


@pytest.fixture(scope="module")
def tools(cache: Cache) -> Path:
    """Debian 13's Docker Compose and Podman; Debian 12 has neither in a version of today."""
    return unpacked("export-tools", "trixie", ("docker-compose", "podman"), cache)


@pytest.fixture
def compose(tools: Path, docker_daemon: DockerDaemon, tmp_path: Path) -> Callable[..., str]:
    """Docker Compose in the directory of an export."""
    program = str(tools / "usr/libexec/docker/cli-plugins/docker-compose")
    environment = {"DOCKER_HOST": docker_daemon.host, "PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def run(directory: Path, *words: str) -> str:
        done = subprocess.run([program, *words], cwd=directory, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def generated(tools: Path, directory: Path) -> dict[str, str]:
    """The services that Podman's generator makes of a directory, by name; it warns of short image names alone."""
    done = subprocess.run(
        [str(tools / "usr/libexec/podman/quadlet"), "-dryrun", "-no-kmsg-log"],
        env={"QUADLET_UNIT_DIRS": str(directory)},
        capture_output=True,
        text=True,
    )
    complaints = [
        line
        for line in done.stderr.splitlines()
        if "Loading source unit file" not in line and "not a fully qualified image name" not in line
    ]
    assert (done.returncode, complaints) == (0, []), done.stderr
    _, *parts = re.split(r"^---(\S+\.service)---\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def write(form: str, what: Request, directory: Path) -> Path:
    write_files(tuple(exported(form, what).values()), directory, form)
    return directory


def test_compose_takes_every_profile(compose: Callable[..., str], tmp_path: Path) -> None:
    for profile in list_profiles():
        for changes in ({}, RICH):
            what = request(profile, Options(selinux=bool(changes), groups=(1000,)), **changes)
            directory = write("compose", what, tmp_path / f"{profile}-{len(changes)}")
            assert sorted(compose(directory, "config", "--services").split()) == ["nginx", "server"]


def test_quadlets_of_every_profile_become_services_that_systemd_takes(tools: Path, tmp_path: Path) -> None:
    written = []
    for profile in list_profiles():
        for changes in ({}, RICH):
            what = request(profile, Options(selinux=bool(changes), groups=(1000,)), **changes)
            services = generated(tools, write("quadlet", what, tmp_path / "quadlets" / f"{profile}-{len(changes)}"))
            assert list(services) == [
                "onecat-chat-cache-volume.service",
                "onecat-chat-nginx.service",
                "onecat-chat.service",
            ]
            (start,) = [line for line in services["onecat-chat.service"].split("\n") if line.startswith("ExecStart=")]
            words = unquoted(start.removeprefix("ExecStart=").replace("%t/%N.cid", "CID"))
            assert tuple(words[-len(what.plan.server_args) :]) == what.plan.server_args
            found = dict(words[at + 1].partition("=")[::2] for at, word in enumerate(words) if word == "--env")
            assert found.items() >= dict(what.plan.env).items()
            if not written or changes and len(written) < 6:
                written += [_saved(tmp_path / f"units-{len(written)}", services)]
    for units in written:
        done = subprocess.run(
            ["systemd-analyze", "verify", *map(str, sorted(units.iterdir()))], capture_output=True, text=True
        )
        told = [line for line in done.stderr.splitlines() if str(units) in line or "onecat-chat" in line]
        assert [line for line in told if "podman is not executable" not in line] == []


def _saved(directory: Path, services: dict[str, str]) -> Path:
    directory.mkdir()
    for name, text in services.items():
        (directory / name).write_text(text)
    return directory


@pytest.mark.parametrize("runtime", ["container", "native"])
def test_systemd_takes_the_units(runtime: str, tmp_path: Path) -> None:
    what = request("cpu", Options(program="/bin/true"), runtime=runtime, secrets=KEY, env=NASTY)
    directory = write("systemd", what, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(directory / "onecat-chat.service")], capture_output=True, text=True
    )
    told = [line for line in done.stderr.splitlines() if "onecat-chat" in line]
    assert [line for line in told if "docker is not executable" not in line] == []


def test_nginx_takes_its_file(nginx: str, tmp_path: Path) -> None:
    proxy = {"listen": "127.0.0.1:18080", "keys_file": "/etc/onecat/keys", "limits": {"connections": 5}}
    files = exported("nginx", request("cpu", proxy=proxy))
    site = files["onecat-chat.conf"].text
    keys = tmp_path / "keys.conf"
    keys.write_text(files["onecat-chat.keys.conf.example"].text)
    site = site.replace("/etc/nginx/onecat-chat.keys.conf", str(keys)).replace("/var/log/nginx", str(tmp_path))
    (tmp_path / "site.conf").write_text(site)
    main = f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/site.conf; }}"
    (tmp_path / "nginx.conf").write_text(main)
    done = subprocess.run([nginx, "-t", "-c", str(tmp_path / "nginx.conf")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- docker compose up ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nginx_image(docker_client: Any, base_image: str, nginx: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """This machine's nginx on the base image, which is of the same Debian release."""
    context = tmp_path_factory.mktemp("nginx-image")
    shutil.copy(nginx, context / "nginx")
    (context / "Dockerfile").write_text(f"FROM {base_image}\nCOPY nginx /usr/sbin/nginx\n")
    docker_client.images.build(path=str(context), tag=NGINX_IMAGE, rm=True)
    return NGINX_IMAGE


@pytest.fixture
def composed(
    compose: Callable[..., str],
    onecat_home: Path,
    tiny_model: Path,
    free_port: Callable[[], int],
    server_image: str,
    nginx_image: str,
    tmp_path: Path,
) -> Iterator[tuple[Path, str]]:
    """A deployment that `docker compose up` has started, and the address of its nginx."""
    for path in (tiny_model, *tiny_model.iterdir()):
        path.chmod(path.stat().st_mode | stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0))
    small = SmallDeployment(Home(onecat_home, onecat_home), tiny_model, free_port(), free_port(), None, server_image)
    proxy = {"listen": f"127.0.0.1:{small.proxy_port}", "image": nginx_image}
    deployment = small.deployment(secrets=KEY, proxy=proxy, env=NASTY, rollout={"drain_seconds": 10})
    plan = small.plan("--busy", "3")
    what = Request(deployment, small.profile(), _with_env(plan, NASTY))
    directory = write("compose", what, tmp_path / "export")
    (directory / "secrets").mkdir()
    key = directory / "secrets" / "api_key"
    key.write_text(SECRET)
    os.chown(key, 10001, 10001)
    key.chmod(0o400)
    try:
        compose(directory, "up", "--detach", "--wait", "--quiet-pull")
        yield directory, f"http://127.0.0.1:{small.proxy_port}"
    finally:
        compose(directory, "down", "--volumes", "--timeout", "5")


def _with_env(plan: Any, env: dict[str, str]) -> Any:
    from dataclasses import replace

    return replace(plan, env=tuple(env.items()))


def ask(url: str, key: str | None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)


def test_docker_compose_up_is_all_it_takes(
    composed: tuple[Path, str], compose: Callable[..., str], docker_client: Any
) -> None:
    """One start for all that can be seen of it: answers, rights, variables, the key, a crash, the order of the stop."""
    directory, url = composed
    assert ask(url, SECRET).status_code == 200
    assert ask(url, None).status_code == 401

    found = {
        each.labels["com.docker.compose.service"]: each
        for each in docker_client.containers.list(filters={"label": "com.docker.compose.project=onecat-demo"})
    }
    assert sorted(found) == ["nginx", "server"]
    server = found["server"]
    for container in found.values():
        host = container.attrs["HostConfig"]
        assert (host["Privileged"], host["CapDrop"], host["ReadonlyRootfs"]) == (False, ["ALL"], True)
        assert host["RestartPolicy"]["Name"] == "unless-stopped"
        assert host["LogConfig"]["Config"] == {"max-size": "16m", "max-file": "4"}
        assert SECRET not in str(container.attrs) and SECRET not in container.logs().decode()
        assert container.attrs["Config"]["User"] == "10001:10001"
    assert server.attrs["NetworkSettings"]["Ports"].get("8000/tcp") is None, "only nginx is published"
    variables = dict(each.partition("=")[::2] for each in server.attrs["Config"]["Env"])
    assert variables.items() >= NASTY.items()
    assert server.attrs["State"]["Health"]["Status"] == "healthy"

    first = server.attrs["State"]["Pid"]
    os.kill(first, 9)
    limit = time.monotonic() + 30
    while ask(url, SECRET).status_code != 200:
        assert time.monotonic() < limit, found["nginx"].logs(tail=20)
        time.sleep(0.2)
    server.reload()
    assert server.attrs["State"]["Pid"] != first

    compose(directory, "stop", "--timeout", "10")
    ends = {}
    for name, container in found.items():
        container.reload()
        ends[name] = container.attrs["State"]["FinishedAt"]
    assert ends["nginx"] < ends["server"]
