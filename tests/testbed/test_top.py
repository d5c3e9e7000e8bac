"""`onecat top` on a real vLLM beside GPUs of the fake NVML, and over a real sshd whose connection is lost."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from onecat.hosts import Machine
from onecat.live.top import Feed, Feeds, Watched, collect, feeds, watched_on
from onecat.observe.metrics import Sample
from tests.testbed.command import Onecat
from tests.testbed.nvml import library as nvml
from tests.testbed.nvml.library import FakeNvml, Host
from tests.testbed.served import Served
from tests.testbed.ssh_host import SshHost
from tests.testbed.test_ssh_machine import connect

pytestmark = pytest.mark.testbed


@contextlib.contextmanager
def loaded(served: Served, at_once: int) -> Iterator[None]:
    """So many requests at a time, as long as the block runs."""
    over = threading.Event()

    def ask() -> None:
        body = {"model": served.model, "prompt": "the " * 20, "max_tokens": 16, "ignore_eos": True}
        with httpx.Client(timeout=120, trust_env=False) as client:
            while not over.is_set():
                client.post(f"{served.endpoint}/v1/completions", json=body).raise_for_status()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(120)


@pytest.mark.engine
def test_a_real_server_under_load_is_shown_recorded_and_replayed(
    served: Served, fake_nvml: Callable[[Host], FakeNvml], tmp_path: Path
) -> None:
    working = [nvml.working(index, 98, 77, power=0.57) for index in (0, 1)]
    environment: dict[str, str | None] = {**fake_nvml(nvml.changed("v100x2", *working)).environment}
    recording = tmp_path / "recording.jsonl"
    argv = served.onecat.argv("top", served.name, "--interval", "0.5", "--json", "--record", recording)
    with loaded(served, 18):
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=served.onecat.environment(environment))
        with process:
            assert process.stdout is not None
            documents = []
            for line in process.stdout:
                documents.append(json.loads(line))
                rates = documents[-1]["rates"]
                if len(documents) >= 6 and rates and rates["generation_tokens"] and rates["ttft"]:
                    break
                assert len(documents) < 120, documents[-1]
            process.terminate()
    last = documents[-1]
    assert (last["schema"], last["deployment"], last["sample"]["host"]) == ("onecat.top/1", served.name, "local")
    (engine,) = last["sample"]["engine"]["engines"]
    # 18 requests at a time, of which --max-num-seqs lets 16 run.
    assert engine["running"] <= 16 and engine["running"] + engine["waiting"] >= 1
    assert [gpu["memory_utilization_percent"] for gpu in last["sample"]["gpus"]] == [77.0, 77.0]
    names = {each["name"] for each in last["sample"]["machine"]["processes"]}
    assert any(name.startswith("VLLM") for name in names), names
    assert last["reading"]["bottleneck"] in ("memory-bandwidth", "queue")
    replayed = served.onecat("top", "--replay", recording, "--speed", "1000").expect(0)
    assert len(replayed.stdout.splitlines()) >= len(documents)
    once = served.onecat("top", served.name, "--once", "--interval", "0.3", environment=environment).expect(0)
    assert "  0   98   77" in once.stdout and "vLLM running" in once.stdout and "requests/s" in once.stdout


def test_a_host_without_a_deployment_shows_itself(onecat: Onecat) -> None:
    once = onecat("top", "--once", "--interval", "0.2").expect(0)
    assert "GPUs: no NVIDIA driver: libnvidia-ml.so.1 was not found" in once.stdout
    assert "local  " in once.stdout and "RAM" in once.stdout
    assert "server: nothing is deployed here" in once.stdout
    wrong = onecat("top", "nosuch", "--once")
    assert wrong.code == 2 and "there is no deployment nosuch" in wrong.stderr


def test_samples_come_over_ssh_without_an_open_port(ssh_host: SshHost) -> None:
    with contextlib.closing(connect(ssh_host)) as machine:
        stream = collect(machine, interval=0.2)
        samples = [next(stream) for _ in range(3)]
        stream.close()  # type: ignore[attr-defined]
    assert samples[-1].host == "gpu1" and samples[-1].machine is not None
    assert samples[-1].machine.cpu_percent is not None and samples[-1].gpus is None
    assert dict(samples[-1].notes)["nvml"].startswith("no NVIDIA driver")


def test_a_host_that_is_lost_is_told_as_such_and_comes_back(ssh_host: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "AGAIN_SECONDS", 0.6)
    opened: list[Machine] = []

    def connect_anew() -> tuple[Machine, Watched]:
        opened.append(connect(ssh_host))
        return opened[-1], watched_on(opened[-1], None)

    with contextlib.closing(connect(ssh_host)) as machine:
        feed = Feed("gpu1", connect_anew, machine, watched_on(machine, None))
        with Feeds([feed], 0.2) as running:
            assert _until(running, lambda sample: sample.error is None)
            machine.transport.connected().sock.close()  # type: ignore[attr-defined]
            lost = _until(running, lambda sample: sample.error is not None)
            assert lost.host == "gpu1" and "lost" in (lost.error or "")
            back = _until(running, lambda sample: sample.error is None)
            assert back.time > lost.time and back.machine is not None
    for each in opened:
        each.close()


def _until(running: Feeds, holds: Callable[[Sample], bool]) -> Sample:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        sample = running.next(1.0)
        if sample is not None and holds(sample):
            return sample
    raise AssertionError("no such sample came")
