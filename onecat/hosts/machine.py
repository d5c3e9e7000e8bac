"""A host as a place to keep files, run programs and reach servers: what `deploy` works with.

One machine stands for one connection: everything that is done on a host over SSH goes through the same one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from onecat.files import write_atomically
from onecat.hosts.conversation import Conversation, LocalConversation
from onecat.hosts.local import LocalTransport
from onecat.hosts.transport import Completed

RUN_SECONDS = 60.0


@dataclass(frozen=True)
class FileStatus:
    """What lies at a path. mode: permission bits; modified: seconds since the epoch."""

    kind: Literal["file", "directory", "link", "other"]
    mode: int
    uid: int
    gid: int
    size: int
    modified: float


class LockHeldError(Exception):
    """Somebody else holds a lock. holder: what they wrote into its file."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(path)
        self.path = path
        self.holder = holder


class Machine(Protocol):
    """One host. Paths are absolute and those of the host; all failures of the connection are OnecatError (code 3).

    What the host itself refuses is an OSError, as on this machine: FileNotFoundError, PermissionError, ENOSPC.
    """

    @property
    def name(self) -> str:
        """The host's name, as the user gave it."""

    @property
    def is_local(self) -> bool: ...

    @property
    def is_lost(self) -> bool:
        """Whether there was a connection to it that has ended by itself: then nothing can be done there any more."""

    @property
    def address(self) -> str | None:
        """The name or address by which it is reached over the network; None where that is not known."""

    @property
    def data_directory(self) -> str:
        """Where onecat keeps what it knows about deployments on this host."""

    @property
    def user_id(self) -> int:
        """Who we are there; 0 for root."""

    @property
    def group_id(self) -> int: ...

    def root(self) -> Machine | None:
        """The same machine with root's rights: itself for root, else through sudo; None where there is no way."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = RUN_SECONDS) -> Completed:
        """Run a program to its end; see `Transport.run`."""

    def start(self, argv: Sequence[str]) -> Conversation:
        """Start a program and talk with it as it runs. Raises OnecatError (exit code 3) when it cannot be started."""

    def read(self, path: str) -> bytes | None:
        """The content of a file; None when there is none."""

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        """So many bytes of a file from a place on; fewer at its end."""

    def link_target(self, path: str) -> str:
        """What a symbolic link says."""

    def write(self, path: str, content: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
        """Write a file so that a reader sees the old content or the new one, and nothing less after a crash."""

    def append(self, path: str, content: bytes) -> None:
        """Add to the end of a file, in one write; it is made with mode 0600 where it is missing."""

    def names(self, path: str) -> tuple[str, ...]:
        """What a directory holds, sorted; nothing where there is none."""

    def entries(self, path: str) -> dict[str, FileStatus]:
        """What a directory holds, by name; links are followed, and one that leads nowhere stays a link.

        Nothing where there is no such directory.
        """

    def status(self, path: str) -> FileStatus | None:
        """What lies at a path, a link not followed; None when there is nothing."""

    def make_directory(self, path: str, mode: int = 0o700) -> None:
        """Make a directory and those above it; one that is there stays as it is."""

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name; a file of that name is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all in it; nothing happens where there is nothing."""

    def free_bytes(self, path: str) -> int:
        """Free bytes on the file system of a path, or of the nearest directory above it that exists."""

    def lock(self, path: str, holder: str) -> contextlib.AbstractContextManager[None]:
        """Hold the lock file at `path`, with `holder` written into it, while the block runs.

        The host's kernel decides (flock(2)): the lock of a program that has ended, or of a connection that is gone, is
        free again. Raises LockHeldError with what the other one wrote.
        """

    def docker_host(self, given: str | None) -> str | None:
        """The address, for use on this machine, of the host's Docker daemon.

        given: the address there, as the operator names it; None for the usual one. Raises OnecatError (code 3).
        """

    def reach(self, url: str) -> str:
        """The URL under which this machine reaches what answers at `url` on the host."""

    def close(self) -> None:
        """Let go of the connection and all that goes through it."""


class LocalMachine:
    """This machine; see Machine.

    Parameters:
        data_directory: of onecat on this machine (`onecat.paths.Home.data`).
    """

    name = "local"
    is_local = True
    is_lost = False
    address = None

    def __init__(self, data_directory: Path) -> None:
        self._data_directory = data_directory
        self._transport = LocalTransport()

    @property
    def data_directory(self) -> str:
        return str(self._data_directory.absolute())

    @property
    def user_id(self) -> int:
        return os.geteuid()

    @property
    def group_id(self) -> int:
        return os.getegid()

    def root(self) -> Machine | None:
        return self if os.geteuid() == 0 else None

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = RUN_SECONDS) -> Completed:
        return self._transport.run(argv, stdin=stdin, timeout=timeout)

    def start(self, argv: Sequence[str]) -> Conversation:
        return LocalConversation(argv, self.name)

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # the latter below /proc
            return None

    def read_part(self, path: str, offset: int, size: int) -> bytes:
        with Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def link_target(self, path: str) -> str:
        return str(Path(path).readlink())

    def write(self, path: str, content: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
        write_atomically(Path(path), content, mode, owner)

    def append(self, path: str, content: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)

    def names(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in Path(path).iterdir()))
        except FileNotFoundError:
            return ()

    def entries(self, path: str) -> dict[str, FileStatus]:
        found = {}
        for name in self.names(path):
            entry = Path(path, name)
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found[name] = _status(entry.stat() if entry.exists() else entry.lstat())
        return found

    def status(self, path: str) -> FileStatus | None:
        try:
            return _status(Path(path).lstat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def make_directory(self, path: str, mode: int = 0o700) -> None:
        Path(path).mkdir(mode, parents=True, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        found = self.status(path)
        if found is None:
            return
        if found.kind == "directory":
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    def free_bytes(self, path: str) -> int:
        existing = Path(path)
        while not existing.exists():
            existing = existing.parent
        return shutil.disk_usage(existing).free

    @contextlib.contextmanager
    def lock(self, path: str, holder: str) -> Iterator[None]:
        with Path(path).open("a+", encoding="utf-8") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LockHeldError(path, _text(path)) from error
            # The file may have been removed between opening and locking: then the lock holds nobody off.
            if not Path(path).exists() or Path(path).stat().st_ino != os.fstat(stream.fileno()).st_ino:
                raise LockHeldError(path, _text(path))
            stream.truncate(0)
            stream.write(holder)
            stream.flush()
            try:
                yield
            finally:
                stream.truncate(0)

    def docker_host(self, given: str | None) -> str | None:
        return given

    def reach(self, url: str) -> str:
        return url

    def close(self) -> None:
        """There is no connection."""


def _status(found: os.stat_result) -> FileStatus:
    kind, mode = file_kind(found.st_mode), stat.S_IMODE(found.st_mode)
    return FileStatus(kind, mode, found.st_uid, found.st_gid, found.st_size, found.st_mtime)


def file_kind(mode: int) -> Literal["file", "directory", "link", "other"]:
    """What a file's mode (stat.st_mode) says that it is."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
