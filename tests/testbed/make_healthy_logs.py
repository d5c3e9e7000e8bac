"""Writes tests/fixtures/logs/healthy again, when it is asked for by name: `python tools/real_logs.py`. Ten minutes.

pytest does not collect it by itself: what the files are for is tested by tests/unit/observe/test_healthy_logs.py.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat.images import NativeRuntime
from onecat.resources import small_model
from tests.testbed.cache import Cache
from tests.testbed.command import Onecat
from tests.testbed.real_logs.cleaning import keep
from tests.testbed.real_logs.engine import EngineStarter, engine_starter
from tests.testbed.real_logs.healthy import HEALTHY, HealthyStage, ray_node
from tests.testbed.served import serving

FOLDER = Path(__file__).parents[1] / "fixtures" / "logs" / "healthy"
RAY = "2.60.0"


@pytest.fixture(scope="module")
def starter(engine_runtime: NativeRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineStarter]:
    with engine_starter(engine_runtime, tmp_path_factory.mktemp("cache")) as started:
        yield started


def keep_as(name: str, text: str, folder: Path) -> None:
    keep(FOLDER / f"{name}.log", text, {folder: "/srv", small_model(): "/models/small"})


@pytest.mark.parametrize("name", HEALTHY)
def test_engine(name: str, starter: EngineStarter, nginx: str, tmp_path: Path) -> None:
    keep_as(name, HEALTHY[name](HealthyStage(starter, tmp_path, nginx)), tmp_path)


def test_supervised(onecat_with_engine: Onecat, tmp_path: Path) -> None:
    """A deployment of onecat: a start, a restart that was asked for, an orderly end."""
    with serving(onecat_with_engine, small_model(), tmp_path) as deployment:
        onecat_with_engine("restart", "served", timeout=300).expect(0)
        store = onecat_with_engine.home / "deployments" / "served"
        body = {"model": "small", "prompt": "In the beginning", "max_tokens": 8}
        for path, model, status in (("completions", "small", 200), ("completions", "gpt-4", 404), ("nothing", "", 404)):
            answer = httpx.post(f"{deployment.endpoint}/v1/{path}", json={**body, "model": model}, trust_env=False)
            assert answer.status_code == status, answer.text
    logs_of_nginx = sorted(each for each in store.rglob("*.log") if each.name in ("access.log", "error.log"))
    keep_as("supervised", "".join(each.read_text() for each in sorted(store.glob("releases/*/server.log"))), tmp_path)
    keep_as("supervised-nginx", "".join(each.read_text() for each in logs_of_nginx), tmp_path)


def test_container(docker_daemon: Any, cpu_image: str, tmp_path: Path) -> None:
    """A server in a container, as `docker logs` tells it and as Docker's json-file driver keeps it."""
    docker = ["docker", "--host", docker_daemon.host]
    argv = [*docker, "run", "--detach", "--name", "healthy", "--volume", f"{small_model()}:/models/small:ro"]
    argv += ["--shm-size", "512m", "--env", "VLLM_CPU_KVCACHE_SPACE=1", cpu_image]
    subprocess.run([*argv, "/models/small", "--enforce-eager", "--max-model-len", "512"], check=True)
    try:
        limit = time.monotonic() + 300
        while "HTTP server started" not in (text := logs(docker)):
            assert time.monotonic() < limit, text
            time.sleep(1)
        subprocess.run([*docker, "stop", "--time", "30", "healthy"], check=True)
        keep_as("docker-timestamps", logs(docker, "--timestamps"), tmp_path)
        path = subprocess.run(
            [*docker, "inspect", "--format", "{{.LogPath}}", "healthy"], capture_output=True, text=True, check=True
        )
        keep_as("docker-json-file", Path(path.stdout.strip()).read_text(), tmp_path)
    finally:
        subprocess.run([*docker, "rm", "--force", "healthy"], check=True)


def logs(docker: list[str], *words: str) -> str:
    done = subprocess.run([*docker, "logs", *words, "healthy"], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_journal(systemd_host: Any, starter: EngineStarter, nginx: str, tmp_path: Path) -> None:
    """The log of a server in a real journal, in the two forms that people copy."""
    text = HEALTHY["eager"](HealthyStage(starter, tmp_path, nginx))
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("server.log")
        member.size = len(text.encode())
        tar.addfile(member, io.BytesIO(text.encode()))
    systemd_host.container.put_archive("/root", archive.getvalue())
    systemd_host.run("sh", "-c", "systemd-cat --identifier=vllm < /root/server.log")
    for form in ("short-iso", "short"):
        told = systemd_host.run("journalctl", "--identifier=vllm", f"--output={form}", "--no-pager").stdout
        keep_as(f"journal-{form}", told, tmp_path)


def test_ray(cache: Cache, tmp_path: Path) -> None:
    folder = cache.folder("ray") / RAY
    if not folder.exists():
        partial = folder.with_name(f".{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--target", str(partial), f"ray[default]=={RAY}"]
        subprocess.run(pip, check=True)
        partial.rename(folder)
    keep_as("ray-head", ray_node(tmp_path, folder), tmp_path)
