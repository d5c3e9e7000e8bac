"""The program that stands beside a starting server: what it sees of processes and of a log."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onecat.deploy import health_gate
from onecat.deploy.health_gate import Log, usage_below, wait

BUSY = "import time\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass\ntime.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def log() -> Iterator[tuple[Log, int]]:
    reading, writing = os.pipe()
    yield Log(reading), writing
    os.close(reading)
    os.close(writing)


@pytest.fixture
def url() -> Iterator[str]:
    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_process_is_seen_with_its_descendants_and_with_no_others(sleeper: subprocess.Popen[bytes]) -> None:
    with subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{BUSY}'; true"], start_new_session=True) as parent:
        limit = time.monotonic() + 10
        while True:
            found = usage_below(parent.pid)
            # The kernel counts in ticks, of which the program's own clock may be a few ahead.
            if found is None or found.activity.cpu_seconds >= 0.2 or time.monotonic() > limit:
                break
            time.sleep(0.05)
        idle = usage_below(sleeper.pid)
        os.killpg(parent.pid, signal.SIGKILL)
    assert found is not None and found.activity.cpu_seconds >= 0.2
    assert idle is not None and idle.activity.cpu_seconds < 0.1


def test_a_process_that_is_gone_is_told() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    assert usage_below(gone.pid) is None


def test_lines_about_health_are_no_sign_of_life(log: tuple[Log, int]) -> None:
    read, writing = log
    os.write(writing, b'INFO "GET /health HTTP/1.1" 200\n')
    read.wait(0.01)
    assert read.mark == 0
    os.write(writing, b"INFO loading\nINFO half a li")
    read.wait(0.01)
    assert read.mark == len(b"INFO loading\n")


def test_a_log_that_has_ended_is_waited_for_all_the_same() -> None:
    with Path(os.devnull).open("rb") as empty:
        began = time.monotonic()
        Log(empty.fileno()).wait(0.2)
    assert time.monotonic() - began >= 0.2


def test_it_ends_when_the_server_answers(url: str, log: tuple[Log, int]) -> None:
    assert wait(f"{url}/health", 1, os.getpid(), log[0]) is None


def test_silence_ends_it(url: str, log: tuple[Log, int], sleeper: subprocess.Popen[bytes]) -> None:
    told = wait(f"{url}/missing", 1, sleeper.pid, log[0])
    assert told == "no log line, no disk read and no CPU use for 1 s: it hangs"


@pytest.mark.parametrize("words", [(), ("http://127.0.0.1:1/health", "1"), ("u", "1", "1", "--journal")])
def test_a_wrong_call_is_told(words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-I", health_gate.__file__, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith("usage:")) == (2, True)


def test_as_a_program_it_needs_nothing_of_onecat(tmp_path: Path) -> None:
    program = Path(health_gate.__file__).read_text()
    argv = [sys.executable, "-I", "-S", "-c", program, "http://127.0.0.1:1/health", "1", "4194305"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (1, "onecat: the server has ended\n")
