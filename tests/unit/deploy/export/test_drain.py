"""The program that Kubernetes runs before it stops a server, against a real HTTP server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from onecat.deploy.export.server import drain_program


class Metrics:
    """A server whose metrics tell of `running` requests for some seconds, then of none."""

    def __init__(self, seconds: float) -> None:
        self.until, self.asked = time.monotonic() + seconds, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                running = 2.0 if time.monotonic() < outer.until else 0.0
                self.send_response(200)
                self.end_headers()
                self.wfile.write(
                    f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting 0.0\n'.encode()
                )

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def busy() -> Iterator[Metrics]:
    metrics = Metrics(1.0)
    yield metrics
    metrics.server.shutdown()
    metrics.server.server_close()


def drained(url: str, wait: str, limit: str) -> float:
    """Seconds that the program took."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", drain_program(), url, wait, limit], check=True, timeout=30)
    return time.monotonic() - started


def test_it_waits_for_the_last_request(busy: Metrics) -> None:
    assert drained(busy.url, "0", "30") >= 1.0
    assert time.monotonic() >= busy.until and busy.asked >= 2


def test_it_gives_up_in_time(busy: Metrics) -> None:
    busy.until += 60
    assert 1.0 <= drained(busy.url, "0", "1") < 10


def test_a_server_that_is_gone_has_no_request_left() -> None:
    assert drained("http://127.0.0.1:9", "0.2", "30") < 10
