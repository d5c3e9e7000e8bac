"""The person who runs onecat: a home with an ssh configuration of its own, and a terminal where one is needed."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Operator:
    """A home directory. Programs that run with `environment` find its ~/.ssh and no SSH agent."""

    home: Path

    @property
    def environment(self) -> dict[str, str | None]:
        return {"HOME": str(self.home), "SSH_AUTH_SOCK": None}

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    def write(self, configuration: str, known_hosts: str) -> None:
        """Write ~/.ssh/config and ~/.ssh/known_hosts."""
        folder = self.home / ".ssh"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "config").write_text(configuration)
        self.known_hosts.write_text(known_hosts)


def run_on_terminal(
    argv: Sequence[str], environment: Mapping[str, str], answers: Sequence[tuple[str, str]], timeout: float = 60
) -> tuple[int, str]:
    """Run a program on a terminal of its own and answer its prompts, each once and in this order.

    Returns its exit code and all that the terminal showed. Raises TimeoutError when it does not end.
    """
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(argv[0], list(argv), dict(environment))
    shown = ""
    waiting = list(answers)
    deadline = time.monotonic() + timeout
    seen = 0
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # what Linux says at the end of a terminal
            data = b""
        if not data:
            _, status = os.waitpid(process, 0)
            os.close(terminal)
            return os.waitstatus_to_exitcode(status), shown
        shown += data.decode(errors="replace")
        if waiting and waiting[0][0] in shown[seen:]:
            prompt, answer = waiting.pop(0)
            seen = shown.index(prompt, seen) + len(prompt)
            os.write(terminal, answer.encode())
    os.kill(process, 9)
    os.waitpid(process, 0)
    os.close(terminal)
    raise TimeoutError(f"{argv[0]} did not end; it showed:\n{shown}")
