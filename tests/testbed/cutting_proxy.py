"""A TCP proxy that does to connections what bad networks do: it cuts them, or lets them stall."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class CuttingProxy:
    """Hands on connections to a port of this machine. cuts: for the connections one after the other, after how many
    bytes from the server it is cut; later ones are left alone. stall: it goes silent instead of being cut.

    Attributes: port: where it listens; connections: how many came.
    """

    target: int
    cuts: list[int]
    stall: bool = False
    port: int = 0
    connections: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def running(self) -> Iterator[CuttingProxy]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                self._ended.set()
                thread.join()

    def _accept(self, listener: socket.socket) -> None:
        while not self._ended.is_set():
            if select.select([listener], [], [], 0.05)[0]:
                client = listener.accept()[0]
                threading.Thread(target=self._hand_on, args=(client,), daemon=True).start()

    def _hand_on(self, client: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            left = self.cuts.pop(0) if self.cuts else None
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            while not self._ended.is_set():
                for one in select.select([client, server], [], [], 0.05)[0]:
                    content = one.recv(min(65536, left) if one is server and left is not None else 65536)
                    if not content:
                        return
                    (server if one is client else client).sendall(content)
                    if one is server and left is not None:
                        left -= len(content)
                        if left <= 0:
                            if self.stall:
                                self._ended.wait()
                            return
