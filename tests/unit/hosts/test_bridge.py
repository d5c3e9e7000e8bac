"""Sockets of this machine that lead through a connection to a host."""

from __future__ import annotations

import socket
from typing import Any, cast

from onecat.hosts.bridge import Bridge


class LostChannel:
    """A channel of a connection that is lost once it is to be closed, as paramiko tells it: by EOFError."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self.closed = 0

    def recv(self, size: int) -> bytes:
        return self._near.recv(size)

    def sendall(self, data: bytes) -> None:
        self._near.sendall(data)

    def shutdown_write(self) -> None:
        raise EOFError

    def close(self) -> None:
        self.closed += 1
        self._far.close()
        raise EOFError


def test_a_lost_connection_does_not_keep_a_bridge_from_ending() -> None:
    channel = LostChannel()
    listener = socket.create_server(("127.0.0.1", 0))
    bridge = Bridge(listener, lambda: cast("Any", channel))
    bridge.start()
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(b"a word")
        assert channel._far.recv(100) == b"a word"
        bridge.stop()
        assert client.recv(1) == b""
    assert channel.closed >= 1
