"""This machine as a host."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.transport import Completed, EndOfInput, Preface


class LocalTransport:
    """Runs programs on this machine, each in a session of its own so that none of its children outlives it."""

    name = "local"
    python = sys.executable
    seconds_to_reach = 1.0

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float, preface: Preface | None = None
    ) -> Completed:
        """See Transport.run."""
        started = time.monotonic()
        try:
            with _input(stdin, preface) as source:
                process = subprocess.Popen(
                    argv, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
                )
        except OSError as error:
            raise OnecatError(
                f"{argv[0]} cannot be started: {error.strerror}", where=self.name, code=ExitCode.UNREACHABLE
            ) from error
        with process:
            try:
                before = _speak(process, preface, timeout) if preface else (b"", b"")
                stdout, stderr = process.communicate(stdin if process.stdin else None, timeout)
            except subprocess.TimeoutExpired as error:
                raise OnecatError(
                    f"{argv[0]} did not end within {timeout:g} s", where=self.name, code=ExitCode.UNREACHABLE
                ) from error
            finally:
                if process.poll() is None:
                    with suppress(ProcessLookupError, PermissionError):  # of another user, as after sudo
                        os.killpg(process.pid, signal.SIGKILL)
        seconds = time.monotonic() - started
        return Completed(tuple(argv), process.returncode, before[0] + stdout, before[1] + stderr, seconds)

    def close(self) -> None:
        """There is no connection."""


@contextmanager
def _input(stdin: bytes, preface: Preface | None) -> Iterator[IO[bytes] | int]:
    """What a program reads: a pipe where there is a conversation, else a file in memory.

    A pipe holds little, so that a large text costs as many turns of two processes as it has pieces.
    """
    if preface is not None or not hasattr(os, "memfd_create"):
        yield subprocess.PIPE
        return
    with open(os.memfd_create("onecat-input"), "w+b") as file:  # noqa: PTH123 - a descriptor, not a path
        file.write(stdin)
        file.seek(0)
        yield file


def _speak(process: subprocess.Popen[bytes], preface: Preface, timeout: float) -> tuple[bytes, bytes]:
    """Say the preface. Returns what the program wrote meanwhile on its standard output and error."""
    assert process.stdin and process.stdout and process.stderr
    deadline = time.monotonic() + timeout
    written = {process.stdout: b"", process.stderr: b""}
    with selectors.DefaultSelector() as selector:
        for stream in written:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, timeout)
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                written[key.fileobj] += data  # type: ignore[index]
                if not data:
                    selector.unregister(key.fileobj)
            asked = time.monotonic()
            try:
                reply = preface.reply(written[process.stdout], written[process.stderr])
            except EndOfInput:
                process.stdin.close()
                process.stdin = None
                break
            deadline += time.monotonic() - asked
            if reply is None:
                break
            with suppress(BrokenPipeError):  # it has ended: its exit code tells
                os.write(process.stdin.fileno(), reply)
    return written[process.stdout], written[process.stderr]
