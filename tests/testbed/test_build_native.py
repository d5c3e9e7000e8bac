"""`onecat build` of a native runtime: real downloads, a real installation, a real vLLM."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat.checkpoints import inspect
from onecat.images import NativeRuntime
from onecat.images.native import INSTALLING, MARKER
from onecat.paths import Home
from onecat.planner.memory import Device, resolved_settings
from onecat.planner.memory.kv_cache import kv_capacity
from onecat.planner.memory.stages import stage_layers
from tests.testbed.command import Onecat
from tests.testbed.ports import free_port

LENGTH = 512
BUILD = ("build", "--profile", "cpu", "--runtime", "native", "--json")


@pytest.fixture
def engine_command(engine_home: Home, engine_runtime: NativeRuntime) -> Onecat:
    """The real command in the home that holds the kept engine."""
    return Onecat(home=engine_home.data, cache=engine_home.cache)


@pytest.mark.engine
def test_a_second_build_takes_a_moment_and_changes_nothing(
    engine_command: Onecat, engine_runtime: NativeRuntime
) -> None:
    started = time.monotonic()
    document = engine_command(*BUILD).expect(0).json()
    assert time.monotonic() - started < 3
    assert document["schema"] == "onecat.build/1" and document["built"] is False
    assert document["directory"] == str(engine_runtime.directory)


@dataclass(frozen=True)
class Served:
    """What a server answered to one chat completion, and its whole log."""

    answer: Any
    log: str


@pytest.fixture(scope="module")
def served(engine_runtime: NativeRuntime, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    port, home = free_port(), tmp_path_factory.mktemp("served")
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]
    arguments += ["--max-model-len", str(LENGTH), "--dtype", "float32", "--enforce-eager"]
    environment = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCH_COMPILE_DISABLE": "1",
    }
    log = home / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            engine_runtime.serve_argv([str(tiny_model), *arguments]),
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        answer = _chat(server, f"http://127.0.0.1:{port}", log)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
    return Served(answer, log.read_text())


@pytest.mark.engine
def test_the_runtime_serves_a_chat_completion(served: Served) -> None:
    content = served.answer["choices"][0]["logprobs"]["content"]
    assert len(content) == 4 and all(-20 < token["logprob"] <= 0 for token in content)


@pytest.mark.engine
def test_it_logs_the_kv_cache_that_onecat_computes(served: Served, tiny_model: Path) -> None:
    architecture = inspect(tiny_model).architecture
    flags = {"max-model-len": LENGTH, "dtype": "float32"}
    settings = resolved_settings(flags, architecture, Device(None, 16 * 2**30), "0.27.1", platform="cpu")
    capacity = kv_capacity(architecture, settings, stage_layers(architecture, 1), [2**30])
    assert capacity is not None
    assert f"GPU KV cache size: {capacity.tokens:,} tokens" in served.log
    logged = f"Maximum concurrency for {LENGTH} tokens per request: {capacity.max_concurrency:.2f}x"
    assert logged in served.log


def _chat(server: subprocess.Popen[bytes], address: str, log: Path) -> Any:
    deadline = time.monotonic() + 300
    while True:
        assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
        try:
            if httpx.get(f"{address}/health", timeout=5).status_code == 200:
                break
        except httpx.TransportError:
            time.sleep(0.5)
    message = {"role": "user", "content": "hello"}
    body = {"model": "tiny", "messages": [message], "max_tokens": 4, "logprobs": True, "ignore_eos": True}
    return httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60).raise_for_status().json()


@pytest.mark.testbed
@pytest.mark.engine
def test_a_build_killed_in_its_installation_is_made_whole_by_the_next_one(
    engine_command: Onecat, onecat_home: Path
) -> None:
    """Wheels come from the kept cache; the runtime is made twice in a home of its own."""
    command = Onecat(home=onecat_home, cache=engine_command.cache)
    with subprocess.Popen(
        command.argv(*BUILD), env=command.environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as killed:
        assert killed.stderr is not None
        for line in killed.stderr:
            if line.startswith("install: ") and "%" in line:
                break
        killed.kill()
    (runtime,) = (path for path in (onecat_home / "runtimes").iterdir() if path.is_dir())
    assert (runtime / INSTALLING).exists() and not (runtime / MARKER).exists()
    result = command(*BUILD, timeout=600).expect(0)
    assert "removing the unfinished" in result.stderr and "downloading" not in result.stderr
    assert result.json()["built"] is True
    assert json.loads((runtime / MARKER).read_text())["python"] == result.json()["python_version"]
    assert "WARNING" not in result.stderr


@pytest.mark.testbed
def test_a_small_disk_is_refused_before_anything_is_downloaded(
    onecat: Onecat, small_disk: Callable[[int], Path]
) -> None:
    home = small_disk(16)
    refused = Onecat(home=home, cache=home / "cache")(*BUILD).expect(5)
    assert "are free on the disk of" in refused.stderr and "ONECAT_HOME" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list(home.rglob("*.whl")) and not list(home.rglob("bin/python"))


@pytest.mark.testbed
def test_a_disk_that_fills_up_underway_is_one_message_and_leaves_no_half_file(
    small_disk: Callable[[int], Path], tmp_path: Path
) -> None:
    from dataclasses import replace

    from onecat.errors import OnecatError
    from onecat.images.lock import EngineLock, LockedFile
    from onecat.images.wheels import Downloader, WheelStore, fetch, file_sha256

    supply = tmp_path / "supply"
    supply.mkdir()
    rows = []
    for name in ("alpha", "beta", "gamma"):
        path = supply / f"{name}-1.0-py3-none-any.whl"
        path.write_bytes(name.encode() * 600_000)
        rows.append(LockedFile(name, "1.0", path.name, file_sha256(path), path.stat().st_size, ("3.11",)))
    lock = EngineLock("tiny", "1.0", "x86_64", "2.31", (), (), "", ("3.11",), (), (), tuple(rows))
    full = WheelStore(small_disk(6) / "wheels", (supply,), tmp_path / "recorded.json")
    downloader = Downloader(Path("/nonexistent"), "3.11", tmp_path / "log")
    with pytest.raises(OnecatError, match="the disk is full"):
        fetch(lock, full, downloader, lambda line: None)
    kept = list(full.directory.iterdir())
    assert kept and all(file_sha256(path) in {row.sha256 for row in rows} for path in kept)
    larger = replace(full, directory=tmp_path / "wheels")
    fetch(lock, larger, downloader, lambda line: None)
    assert len(list(larger.directory.iterdir())) == 3
