"""This machine as a host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.transport import Completed


class LocalTransport:
    """Runs programs on this machine, each in a session of its own so that none of its children outlives it."""

    name = "local"
    python = sys.executable

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
        """See Transport.run."""
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise OnecatError(
                f"{argv[0]} cannot be started: {error.strerror}", where=self.name, code=ExitCode.UNREACHABLE
            ) from error
        with process:
            try:
                stdout, stderr = process.communicate(stdin, timeout)
            except subprocess.TimeoutExpired as error:
                raise OnecatError(
                    f"{argv[0]} did not end within {timeout:g} s", where=self.name, code=ExitCode.UNREACHABLE
                ) from error
            finally:
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        return Completed(tuple(argv), process.returncode, stdout, stderr, time.monotonic() - started)
