"""An HTTP server that answers as it is told, byte by byte: what no honest server does."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Asked:
    """One request. headers: by lower-case name."""

    method: str
    path: str
    headers: dict[str, str]


Script = Callable[[Asked], bytes | None]
"""The raw answer to a request; None: the connection is held open without a byte until the server ends."""


@dataclass
class HostileServer:
    """address: without a slash at the end. asked: all requests so far."""

    script: Script
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[HostileServer]:
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while line := self.rfile.readline(65536):
                    method, path, _ = line.decode("latin-1").split(" ", 2)
                    headers = {}
                    while (row := self.rfile.readline(65536)) not in (b"\r\n", b""):
                        name, _, value = row.decode("latin-1").partition(":")
                        headers[name.lower()] = value.strip()
                    asked = Asked(method, path, headers)
                    outer.asked.append(asked)
                    raw = outer.script(asked)
                    if raw is None:
                        outer.ended.wait()
                        return
                    with contextlib.suppress(OSError):
                        self.wfile.write(raw)
                    if b"connection: close" in raw.lower():
                        return

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        with Server(("127.0.0.1", 0), Handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                self.ended.set()
                server.shutdown()


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """A well-formed answer; underscores of header names become dashes."""
    rows = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return f"HTTP/1.1 {status}\r\n{''.join(f'{k}: {v}{chr(13)}{chr(10)}' for k, v in rows.items())}\r\n".encode() + body
