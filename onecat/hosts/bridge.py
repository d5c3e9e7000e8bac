"""Sockets on this machine behind which something on a host answers, through a channel for each connection."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import OnecatError

if TYPE_CHECKING:
    from paramiko import Channel

    from onecat.hosts.ssh import SshTransport

PIECE_BYTES = 1 << 16
_NAME_CHARACTERS = 24  # of the host in the socket's path, which may have about 100


@contextlib.contextmanager
def socket_bridge(transport: SshTransport, argv: Sequence[str]) -> Iterator[Path]:
    """A Unix socket that only this user can reach; gone, with all its connections, at the end.

    Parameters:
        transport: the host. argv: a program whose standard input and output are the other side of one connection.
    """
    with channel_bridge(transport.name, lambda: transport.open(argv)) as path:
        yield path


@contextlib.contextmanager
def channel_bridge(host: str, open_channel: Callable[[], Channel]) -> Iterator[Path]:
    """The same; open_channel: to the other side of one connection, raises OnecatError when there is none."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", host)[:_NAME_CHARACTERS]
    directory = Path(tempfile.mkdtemp(prefix=f"onecat-{name}-"))  # mode 0700
    path = directory / "docker.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bridge = Bridge(listener, open_channel)
    try:
        listener.bind(str(path))
        listener.listen(16)
        bridge.start()
        yield path
    finally:
        bridge.stop()
        shutil.rmtree(directory)


class Bridge:
    """Accepts connections and carries bytes both ways.

    Parameters:
        listener: a socket that listens when `start` is called. open_channel: to the other side of one connection.
    """

    def __init__(self, listener: socket.socket, open_channel: Callable[[], Channel]) -> None:
        self._listener = listener
        self._open_channel = open_channel
        self._lock = threading.Lock()
        self._open: set[tuple[socket.socket, Channel]] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._listener.close()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            for ours, theirs in self._open:
                with contextlib.suppress(OSError):
                    ours.shutdown(socket.SHUT_RDWR)
                _close(theirs)

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            try:
                theirs = self._open_channel()
            except OnecatError:
                # Whoever connected sees the end at once, as from a server that is gone, and tells what that means.
                ours.close()
                continue
            pair = (ours, theirs)
            with self._lock:
                self._open.add(pair)
            threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, ours: socket.socket, theirs: Channel) -> None:
        upward = threading.Thread(target=_up, args=(ours, theirs), daemon=True)
        upward.start()
        _down(ours, theirs)
        upward.join()
        _close(theirs)
        ours.close()
        with self._lock:
            self._open.discard((ours, theirs))


def _close(channel: Channel) -> None:
    with contextlib.suppress(OSError, EOFError):  # paramiko sends a word at the end, also where the connection is lost
        channel.close()


def _up(ours: socket.socket, theirs: Channel) -> None:
    """From here to the host. The end of what is sent is passed on; answers may still come."""
    with contextlib.suppress(OSError, EOFError):
        while piece := ours.recv(PIECE_BYTES):
            theirs.sendall(piece)
    with contextlib.suppress(OSError, EOFError):
        theirs.shutdown_write()


def _down(ours: socket.socket, theirs: Channel) -> None:
    """From the host to here, until the program ends; then nobody need send to it any more."""
    with contextlib.suppress(OSError, EOFError):
        while piece := theirs.recv(PIECE_BYTES):
            ours.sendall(piece)
    with contextlib.suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)
