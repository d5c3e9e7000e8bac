"""What every way to reach a host offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Completed:
    """A program that ran to its end. seconds: wall time."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    seconds: float


class Transport(Protocol):
    """A way to run programs on one host."""

    @property
    def name(self) -> str:
        """The host's name, as the user gave it."""

    @property
    def python(self) -> str:
        """The Python interpreter to start on that host."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
        """Run a program to its end.

        Parameters:
            argv: program and arguments; never passed through a shell as text.
            stdin: what the program reads from standard input.
            timeout: seconds after which the program and what it started are killed.

        Raises OnecatError (exit code 3) when the program cannot be started or does not end in time.
        """
