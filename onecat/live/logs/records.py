"""What is read from logs, and what is wanted of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onecat.observe import Diagnosis
from onecat.observe.patterns import Pattern

Stream = Literal["server", "canary", "nginx error", "nginx access"]


@dataclass(frozen=True)
class Source:
    """One log. host: its machine's name. release: whose server writes it; None for nginx, which outlives releases.
    deployment: its name."""

    host: str
    stream: Stream
    release: int | None = None
    deployment: str | None = None


@dataclass(frozen=True)
class Entry:
    """One line. text: as the runtime serves it, with its time. moment: seconds since 1970, its own or, where it has
    none, as a line of a traceback, that of the line before it; None before the first time of its source."""

    source: Source
    text: str
    moment: float | None


@dataclass(frozen=True)
class Finding:
    """What is newly known after the line that stands before it. moment: of the line that shows it."""

    source: Source
    diagnosis: Diagnosis
    moment: float | None = None


@dataclass(frozen=True)
class Opened:
    """Logs that are followed from now on."""

    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Notice:
    """What happens to a log while it is followed: another release's begins, or it ends."""

    source: Source
    text: str


@dataclass(frozen=True)
class LeftOut:
    """Lines of a log that were wanted and are too many to be told. count: of the earliest; kept: of the latest."""

    source: Source
    count: int
    kept: int


@dataclass(frozen=True)
class Loss:
    """A host whose logs cannot be read, or no longer."""

    host: str
    error: Exception


Told = Entry | Finding | Notice
"""What has its place among the lines of a log."""
Event = Told | Opened | LeftOut | Loss


@dataclass(frozen=True)
class Wanted:
    """What is to be told.

    name: of the deployment; None where a host has only one. lines: how many of the past, of all logs together; None
    for all. since: seconds since 1970. pattern: what a line must have. nginx: also the logs of the nginx before it.
    """

    name: str | None
    lines: int | None = 100
    release: int | None = None
    since: float | None = None
    pattern: Pattern | None = None
    diagnose: bool = True
    nginx: bool = False

    @property
    def count(self) -> int | None:
        """How many of its last lines, at least one, have to be read of each log for what is wanted; None: all."""
        return None if self.pattern is not None or self.lines is None else max(1, self.lines)
