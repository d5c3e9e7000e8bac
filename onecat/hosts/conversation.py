"""Talking with a program that runs on a host: what it is sent, and what it answers line by line."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from paramiko import Channel

KEPT_ERRORS = 1 << 16
"""How much of the end of its standard error is kept."""
END_SECONDS = 2.0
"""How long a program has to end by itself after its input has been closed."""
_LOOK_SECONDS = 0.05


class Conversation(ABC):
    """A program that runs on a host. Use it as a context manager: it does not outlive the block.

    Its standard error is read all the time, so that the program never waits for that.
    """

    def __init__(self) -> None:
        self._buffer = b""

    def line(self, timeout: float | None = None) -> bytes | None:
        """The next line of its standard output, without its end; None when there are no more.

        Raises TimeoutError when it does not come within `timeout` seconds, and OnecatError (exit code 3) when the
        connection is lost.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._buffer:
            try:
                data = self.receive(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except TimeoutError as error:
                raise TimeoutError(f"nothing came within {timeout:g} s") from error
            if not data:
                rest, self._buffer = self._buffer, b""
                return rest or None
            self._buffer += data
        found, _, self._buffer = self._buffer.partition(b"\n")
        return found

    @abstractmethod
    def receive(self, timeout: float | None = None) -> bytes:
        """What it wrote on its standard output since, at least one byte; b"" at the end. Not to be mixed with `line`.

        Raises as `line` does.
        """

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write to its standard input. Raises OnecatError (exit code 3) when it has ended or the connection is lost."""

    @abstractmethod
    def close_input(self) -> None:
        """Let it find the end of its standard input."""

    @property
    @abstractmethod
    def errors(self) -> bytes:
        """The end of what it has written on its standard error so far."""

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """None while it runs, or when the connection was lost; negative for a signal."""

    @abstractmethod
    def close(self) -> None:
        """End it: its input is closed, then, on this machine, what it started is killed.

        Over SSH a program that does not look at its input ends with its next output.
        """

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class LocalConversation(Conversation):
    """A program of this machine, in a session of its own."""

    def __init__(self, argv: Sequence[str], where: str) -> None:
        super().__init__()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise OnecatError(
                f"{argv[0]} cannot be started: {error.strerror}", where=where, code=ExitCode.UNREACHABLE
            ) from error
        self._program = argv[0]
        self._where = where
        self._errors = b""
        self._draining = threading.Thread(target=self._drain, daemon=True)
        self._draining.start()

    def receive(self, timeout: float | None = None) -> bytes:
        assert self._process.stdout is not None
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise TimeoutError(f"nothing came within {timeout:g} s")
            return os.read(self._process.stdout.fileno(), 1 << 20)
        except ValueError as error:  # closed by another thread
            raise _ended(self._program, self._where, self.errors) from error

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._process.stdin.fileno(), left) :]
        except (BrokenPipeError, ValueError) as error:
            raise _ended(self._program, self._where, self.errors) from error

    def close_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    @property
    def errors(self) -> bytes:
        return self._errors

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        self.close_input()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):  # of another user, as after sudo
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._draining.join(END_SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _drain(self) -> None:
        assert self._process.stderr is not None
        while data := os.read(self._process.stderr.fileno(), 1 << 16):
            self._errors = (self._errors + data)[-KEPT_ERRORS:]


class ChannelConversation(Conversation):
    """A program on a channel of an SSH connection.

    Parameters:
        channel: on which it has been started.
        program, where: what to call it and its host in errors.
    """

    def __init__(self, channel: Channel, program: str, where: str) -> None:
        super().__init__()
        self._channel = channel
        self._program = program
        self._where = where
        self._errors = b""

    def receive(self, timeout: float | None = None) -> bytes:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._drain()
            self._channel.settimeout(
                _LOOK_SECONDS * 20 if deadline is None else max(0.0, min(1.0, deadline - time.monotonic()))
            )
            try:
                data = self._channel.recv(1 << 20)
            except TimeoutError:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"nothing came within {timeout:g} s") from None
                continue
            if not data and not self._is_connected:
                raise OnecatError("the connection was lost", where=self._where, code=ExitCode.UNREACHABLE)
            return bytes(data)

    def send(self, data: bytes) -> None:
        self._channel.settimeout(None)
        try:
            self._channel.sendall(data)
        except (OSError, EOFError) as error:
            raise _ended(self._program, self._where, self.errors) from error

    def close_input(self) -> None:
        with suppress(OSError, EOFError):
            self._channel.shutdown_write()

    @property
    def errors(self) -> bytes:
        self._drain()
        return self._errors

    @property
    def exit_code(self) -> int | None:
        if not self._channel.exit_status_ready():
            return None
        code = int(self._channel.recv_exit_status())
        return None if code == -1 else code

    def close(self) -> None:
        self.close_input()
        deadline = time.monotonic() + END_SECONDS
        while not self._channel.exit_status_ready() and self._is_connected and time.monotonic() < deadline:
            self._drain()
            while self._channel.recv_ready():  # it may wait for its last words to be read
                self._channel.recv(1 << 20)
            self._channel.status_event.wait(_LOOK_SECONDS)
        with suppress(OSError, EOFError):  # paramiko sends a word at the end, also where the connection is lost
            self._channel.close()

    @property
    def _is_connected(self) -> bool:
        connection = self._channel.get_transport()
        return connection is not None and connection.is_active()

    def _drain(self) -> None:
        while self._channel.recv_stderr_ready():
            self._errors = (self._errors + self._channel.recv_stderr(1 << 16))[-KEPT_ERRORS:]


def _ended(program: str, where: str, errors: bytes) -> OnecatError:
    return OnecatError(
        f"{program} has ended",
        where=where,
        details=errors.decode(errors="replace").splitlines()[-5:],
        code=ExitCode.UNREACHABLE,
    )
