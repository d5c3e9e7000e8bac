"""Programs as root on a host, by sudo.

sudo(8), https://www.sudo.ws/docs/man/sudo.man/: -n never asks; -S reads the password from standard input and writes its
prompt to standard error; -p sets the prompt. The password is sent when sudo asks for it and not otherwise, so it never
reaches the program and never stands in an argument list; the program gets its standard input only when it has started.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.asking import Desk
from onecat.hosts.transport import Completed, EndOfInput, Preface, Transport

if TYPE_CHECKING:
    from paramiko import Channel

_LOOK_SECONDS = 0.02
PROMPT = b"onecat-sudo-password:"
STARTED = b"onecat-sudo-started\n"
_ANNOUNCE = f'echo {STARTED.decode().strip()}; exec "$@"'


class SudoRefusedError(OnecatError):
    """sudo does not let the program start."""


class SudoPasswords:
    """The password that the person types for sudo: asked for once, when the first host wants it, and used for all."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lock = threading.Lock()
        self._answer: str | None = None
        self._was_asked = False

    @property
    def can_ask(self) -> bool:
        return self._desk.is_attended

    def password(self, host: str) -> str | None:
        """The password; None when the person gave none."""
        with self._desk.waiting(), self._lock:
            if not self._was_asked:
                self._was_asked = True
                self._answer = self._desk.ask(f"password for sudo on {host} (and on the other hosts): ")
            return self._answer


class SudoTransport:
    """A host on which programs run as root."""

    def __init__(self, transport: Transport, passwords: SudoPasswords) -> None:
        self._transport = transport
        self._passwords = passwords

    @property
    def name(self) -> str:
        return self._transport.name

    @property
    def python(self) -> str | None:
        return self._transport.python

    @property
    def seconds_to_reach(self) -> float:
        return self._transport.seconds_to_reach

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float, preface: Preface | None = None
    ) -> Completed:
        """See Transport.run. Raises SudoRefusedError when sudo does not let the program start."""
        answers = _Answers(self._passwords, self.name)
        completed = self._transport.run(self._command(argv), stdin=stdin, timeout=timeout, preface=answers)
        before, started, after = completed.stdout.partition(STARTED)
        if not started:
            raise self._refusal(completed, answers.has_sent)
        return replace(completed, stdout=before + after)

    def open(self, argv: Sequence[str]) -> Channel:
        """Start a program as root over SSH and leave it to the caller to talk with it; see SshTransport.open.

        Raises SudoRefusedError when sudo does not let the program start.
        """
        opened = self._transport.open(self._command(argv))  # type: ignore[attr-defined] # only hosts over SSH have it
        answers = _Answers(self._passwords, self.name)
        stdout = stderr = b""
        while not stdout.endswith(STARTED):
            ended = opened.exit_status_ready()
            if opened.recv_ready():
                stdout += opened.recv(1)  # not more: what follows is the program's own
            elif opened.recv_stderr_ready():
                stderr += opened.recv_stderr(4096)
            elif ended or opened.closed:
                completed = Completed(tuple(argv), opened.recv_exit_status(), stdout, stderr, 0.0)
                raise self._refusal(completed, answers.has_sent)
            else:
                time.sleep(_LOOK_SECONDS)
            try:
                reply = answers.reply(stdout, stderr)
            except EndOfInput:
                opened.shutdown_write()
                continue
            if reply:
                opened.sendall(reply)
        return cast("Channel", opened)

    def close(self) -> None:
        self._transport.close()

    def _command(self, argv: Sequence[str]) -> list[str]:
        how = ["-S", "-p", PROMPT.decode()] if self._passwords.can_ask else ["-n"]
        return ["sudo", *how, "--", "sh", "-c", _ANNOUNCE, "sh", *argv]

    def _refusal(self, completed: Completed, has_sent: bool) -> SudoRefusedError:
        text = completed.stderr.replace(PROMPT, b"").decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        steps = ["allow the agent's start without a password in /etc/sudoers (visudo), or log in as root"]
        if completed.exit_code == 127 or "command not found" in text:
            found, steps = "there is no sudo", ["log in as root: --host root@NAME", "or leave out --sudo"]
        elif has_sent and "is not in the sudoers file" not in text:
            found, steps = "sudo did not take the password", ["type the command again", *steps]
        elif "password is required" in text or "terminal is required" in text or PROMPT in completed.stderr:
            found = "sudo needs a password, and nobody gave it"
            steps = ["type the command in a terminal, which asks for the password once", *steps]
        else:
            found = "sudo refuses to run it"
        return SudoRefusedError(found, where=self.name, details=lines[-5:], next_steps=steps, code=ExitCode.UNREACHABLE)


class _Answers:
    """What sudo is told: the password at its first prompt, nothing at a second one, for that would be a wrong one."""

    def __init__(self, passwords: SudoPasswords, host: str) -> None:
        self._passwords = passwords
        self._host = host
        self.has_sent = False

    def reply(self, stdout: bytes, stderr: bytes) -> bytes | None:
        if STARTED in stdout:
            return None
        prompts = stderr.count(PROMPT)
        if prompts > 1:
            raise EndOfInput
        if prompts == 0 or self.has_sent:
            return b""
        password = self._passwords.password(self._host)
        if not password:
            raise EndOfInput
        self.has_sent = True
        return password.encode() + b"\n"
