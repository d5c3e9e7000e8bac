"""What both runtimes have in common: a server that can be started, watched and stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from onecat.deploy.health_gate import Activity as Activity

# starting: the supervisor or Docker is about to start it. running: its process is there (healthy or not).
# exited: ended before it was accepted. lost: the supervisor died and nothing looks after the server.
Condition = Literal["starting", "running", "backing-off", "keeps-crashing", "exited", "stopped", "lost", "absent"]

RUNNING = ("starting", "running", "backing-off", "lost")
"""Conditions of a server that runs, or would run again by itself."""


class ServerState(NamedTuple):
    """What is known about the server's process. started_at, next_start_at: UTC, RFC 3339."""

    condition: Condition
    pid: int | None = None
    started_at: str | None = None
    restarts: int = 0
    crashes_in_a_row: int = 0
    last_exit: str | None = None
    next_start_at: str | None = None


@dataclass(frozen=True)
class Secret:
    """Where the API key comes from: a file, or a variable of the environment `up` runs in. Exactly one is set."""

    file: str | None = None
    env: str | None = None


class Server(Protocol):
    """One release's server on one runtime."""

    def start(self) -> None:
        """Start it; returns as soon as it is on its way. Raises OnecatError when it cannot even begin."""

    def accept(self) -> None:
        """From now on a crash is answered by a restart."""

    def stop(self) -> None:
        """End it and everything it has started; nothing happens when it does not run."""

    def state(self) -> ServerState: ...

    def activity(self) -> Activity: ...

    def last_lines(self, count: int) -> list[str]:
        """The last lines of its log, with timestamps, oldest first."""

    def lines(self, since: float | None = None) -> Iterator[str]:
        """All of its log that is kept, as it is read, in bounded memory.

        since: seconds since 1970; what was written before may be left out.
        """

    def follow(self, count: int | None) -> Iterator[str]:
        """The last lines of its log (None: all) and then new ones as they come, until it is gone for good."""
