"""Real failures of the real engine, nginx and Docker: each is diagnosed from the log that it left here and now.

What is expected of each stands in tests/fixtures/logs/failures/expected.yaml, beside a kept copy of each log for the
unit tests. `python tools/real_logs.py failures` writes these copies anew. Servers start two at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onecat.errors import ExitCode
from onecat.images import NativeRuntime
from tests.failure_logs import EXPECTED, FAILURES, faults_of
from tests.testbed.command import Onecat
from tests.testbed.real_logs import failures, supervised
from tests.testbed.real_logs.cleaning import KEEP, keep
from tests.testbed.real_logs.engine import engine_starter

pytestmark = pytest.mark.engine

# Those that take longest begin first.
FIRST = ("no-compiler", "disk-full")
AT_ONCE = 2
# Provoked only when logs are kept anew: each takes two processes that load vLLM, as a like one here does.
SELDOM = {
    "bad-value", "broken-configuration", "damaged-scales", "disk-full", "engine-killed", "header-too-large",
    "missing-shard", "missing-weights", "no-kernel-for-scheme", "no-ray", "quantization-package-missing",
    "removed-flag", "scales-not-in-the-configuration", "sleep-mode-on-a-processor", "unknown-model-type",
    "unreadable-model", "unreadable-shard", "worker-killed",
}  # fmt: skip
PROVOKED = [name for name in failures.ENGINE if KEEP in os.environ or name not in SELDOM]


@pytest.fixture(scope="module")
def engine_log(
    engine_runtime: NativeRuntime,
    tiny_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[str], Path]]:
    """The log of a failure of the engine, once it has happened. All of those that are asked for begin now."""
    asked = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and "engine_log" in item.fixturenames
    }
    cache = tmp_path_factory.mktemp("cache")
    with engine_starter(engine_runtime, cache) as starter, ThreadPoolExecutor(AT_ONCE) as pool:

        def provoke(name: str) -> Path:
            folder = tmp_path_factory.mktemp(name)
            text = failures.ENGINE[name](failures.Stage(starter, folder, tiny_model))
            path = folder / "failure.log"
            path.write_text(text, encoding="utf-8")
            keep(FAILURES / f"{name}.log", text, {folder: "/srv", tiny_model.parent: "/srv"})
            return path

        order = sorted(asked, key=lambda name: (name not in FIRST, name))
        pending: dict[str, Future[Path]] = {name: pool.submit(provoke, name) for name in order}
        try:
            yield lambda name: pending[name].result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            starter.kill()


def check(onecat: Onecat, name: str, log: Path) -> None:
    document = onecat("diagnose", log, "--json").json()
    assert document["schema"] == "onecat.diagnose/1"
    assert faults_of(document["diagnoses"], EXPECTED[name]) == [], log.read_text(errors="replace")[-4000:]


@pytest.mark.parametrize("name", PROVOKED)
def test_a_server_that_fails_says_why(name: str, engine_log: Callable[[str], Path], onecat: Onecat) -> None:
    check(onecat, name, engine_log(name))


@pytest.mark.parametrize("name", failures.PROXY)
def test_an_nginx_that_fails_says_why(name: str, nginx: str, onecat: Onecat, tmp_path: Path) -> None:
    logs = failures.PROXY[name](failures.ProxyStage(tmp_path, nginx))
    for kind, text in (("", logs.error), ("-access", logs.access)):
        if f"{name}{kind}" in EXPECTED:
            keep(FAILURES / f"{name}{kind}.log", text, {tmp_path: "/srv"})
            path = tmp_path / f"{name}{kind}.log"
            path.write_text(text)
            check(onecat, f"{name}{kind}", path)


@pytest.mark.parametrize("name", failures.DOCKER)
def test_a_container_that_fails_says_why(
    name: str, docker_daemon: Any, base_image: str, onecat: Onecat, tmp_path: Path
) -> None:
    text = failures.DOCKER[name](failures.DockerStage(docker_daemon.host, base_image))
    path = tmp_path / f"{name}.log"
    path.write_text(text)
    keep(FAILURES / f"{name}.log", text, {Path(docker_daemon.directory): "/run"})
    check(onecat, name, path)


def test_a_killed_worker_of_a_deployment_is_told_by_its_logs(
    onecat_with_engine: Onecat, tiny_model: Path, tmp_path: Path
) -> None:
    with supervised.supervised(onecat_with_engine, tiny_model, tmp_path) as deployment:
        supervised.kill_the_worker(deployment)
        shown = onecat_with_engine("logs", "demo", "--lines", "400").expect(0).stdout
        keep(FAILURES / "supervised-worker-killed.log", deployment.log().read_text(), {tiny_model.parent: "/srv"})
        path = tmp_path / "shown.log"
        path.write_text(shown)
        for log in (deployment.log(), path):
            check(onecat_with_engine, "supervised-worker-killed", log)


# test_memory_faults.py proves the same with a server that starts in moments.
if KEEP in os.environ:

    def test_a_server_that_exceeds_its_memory_says_so(
        onecat_with_engine: Onecat, tiny_model: Path, tmp_path: Path
    ) -> None:
        with supervised.supervised(onecat_with_engine, tiny_model, tmp_path) as deployment:
            told = supervised.exceed_the_memory(deployment)
            keep(FAILURES / "supervised-out-of-memory.log", deployment.log().read_text(), {tiny_model.parent: "/srv"})
            check(onecat_with_engine, "supervised-out-of-memory", deployment.log())
            assert told.returncode == ExitCode.ROLLED_BACK
            assert "ran out of main memory" in " ".join(told.stderr.split())
