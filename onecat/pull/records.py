"""What is to be fetched, from where, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Check = Literal["sha256", "git-blob"]
"""What the content of a file is compared with."""


@dataclass(frozen=True)
class RemoteFile:
    """One file of a source.

    path: relative to the target directory, checked by `names.checked_path`. size: bytes; None when nobody said.
    sha256: hex, as the hub or a manifest says. blob: SHA-1 (hex) of the file as a git blob, for small files of a hub.
    validator: its ETag, else its date, when a server was asked for its headers.
    """

    path: str
    url: str
    size: int | None = None
    sha256: str | None = None
    blob: str | None = None
    validator: str | None = None

    @property
    def check(self) -> Check | None:
        """What tells whether a content is this file's; None when the source tells no checksum."""
        return "sha256" if self.sha256 is not None else "git-blob" if self.blob is not None else None


@dataclass(frozen=True)
class Listing:
    """All files of a source. source: in words, without secrets. revision: the commit that was resolved, for a hub."""

    source: str
    files: tuple[RemoteFile, ...]
    revision: str | None = None


@dataclass(frozen=True)
class Skipped:
    """A file of the source that is not fetched, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class PullRequest:
    """What a person asked for.

    source: an URL, or ORG/NAME[@REVISION]. endpoint: of the hub. include, exclude: globs. jobs: connections at once.
    manifest: a file of SHA-256 checksums. insecure_http: plain HTTP to other machines was allowed.
    replace: files that are there and differ may be replaced. stall_seconds: how long a connection may give nothing.
    """

    source: str
    directory: Path
    revision: str | None = None
    endpoint: str | None = None
    token_file: Path | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    jobs: int = 8
    manifest: Path | None = None
    insecure_http: bool = False
    replace: bool = False
    dry_run: bool = False
    stall_seconds: float = 30.0


FileState = Literal["fetched", "resumed", "present", "missing"]
"""`missing` only in a dry run: it would be fetched."""


@dataclass(frozen=True)
class PulledFile:
    """One file of the result. checked: what its content was compared with; None when the source tells no checksum."""

    path: str
    bytes: int | None
    state: FileState
    sha256: str | None = None
    checked: Check | None = None


@dataclass(frozen=True)
class Pulled:
    """The result. fetched_bytes: what came over the network in this run; notes: what a person should know."""

    source: str
    directory: Path
    revision: str | None
    files: tuple[PulledFile, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]
    fetched_bytes: int
    seconds: float
    dry_run: bool = False
    manifest: Path | None = None

    @property
    def bytes(self) -> int:
        """Size of all files, as far as it is known."""
        return sum(each.bytes or 0 for each in self.files)


@dataclass(frozen=True)
class Progress:
    """How far a pull has come. All counts in bytes, speed in bytes per second over the last seconds.

    total: None as long as the size of a file is not known.
    """

    done: int
    total: int | None
    speed: float
    files_done: int
    files: int

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at this speed; None when that cannot be told."""
        if self.total is None or self.speed <= 0:
            return None
        return max(self.total - self.done, 0) / self.speed
