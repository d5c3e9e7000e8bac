"""What every way to reach a host offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from onecat.errors import OnecatError


class ConnectionLostError(OnecatError):
    """A connection that was there has ended, and with it all that was held on it."""


@dataclass(frozen=True)
class Completed:
    """A program that ran to its end. seconds: wall time."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    seconds: float


class Preface(Protocol):
    """What is said with a program before it gets its standard input, as with one that asks for a password first."""

    def reply(self, stdout: bytes, stderr: bytes) -> bytes | None:
        """What to send next, from all that the program has written so far.

        b"": nothing yet. None: the preface is over, the standard input follows. The time that a reply takes does not
        count: a person may have been asked. Raises EndOfInput when nothing more is to be sent.
        """


class EndOfInput(Exception):
    """The standard input ends here: raised by a preface that has no answer."""


class Transport(Protocol):
    """A way to run programs on one host."""

    @property
    def name(self) -> str:
        """The host's name, as the user gave it."""

    @property
    def python(self) -> str | None:
        """The Python interpreter that is known to be on that host; None when it must be looked for."""

    @property
    def seconds_to_reach(self) -> float:
        """How long it may take until a program can be started there."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float, preface: Preface | None = None
    ) -> Completed:
        """Run a program to its end.

        Parameters:
            argv: program and arguments; never passed through a shell as text.
            stdin: what the program reads from standard input.
            timeout: seconds after which the program and what it started are killed.
            preface: what is said before; None sends `stdin` at once.

        Raises OnecatError (exit code 3) when the program cannot be started or does not end in time.
        """

    def close(self) -> None:
        """Let go of the connection; the next run makes a new one."""
