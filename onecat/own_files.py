"""Files that onecat keeps in a person's directory: reached through no link, and written by one run at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from onecat.errors import ExitCode, OnecatError

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def check_writable(directory: Path) -> None:
    """Raises OnecatError when this user may not make `directory`, or files in it: before anything long is begun."""
    try:
        there = next(each for each in (directory.absolute(), *directory.absolute().parents) if each.exists())
        by_mode = os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)
        allowed = by_mode or not there.is_dir()  # a file in the way is told as what it is
        where = there
    except PermissionError as error:
        allowed, where = False, Path(error.filename or directory)
    if not allowed and _is_read_only(where):
        raise OnecatError(
            f"{where} lies on a file system that can only be read",
            expected="a directory that can be written",
            where=str(directory),
            next_steps=["name another directory, or mount it for writing"],
        )
    if not allowed:
        raise OnecatError(
            f"you may not write to {where}",
            expected="a directory of your own",
            where=str(directory),
            next_steps=["name another directory, or check its owner and mode: ls -ld"],
        )


def _is_read_only(place: Path) -> bool:
    try:
        return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
    except PermissionError:  # below a directory that may not be entered
        return False


def make_own_directory(folder: Path) -> Path:
    """Make it, if it is not there. Raises OnecatError when it is a link: files would be written elsewhere."""
    if not folder.is_symlink():
        folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise _planted(folder)
    return folder


def open_own(path: Path, flags: int) -> int:
    """Open a file of our own and make it if it is not there; a descriptor. Its mode is what the umask leaves.

    Raises OnecatError when it is a link: it may lead to any file of this user. Raises OSError.
    """
    try:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _planted(path) from error


def _planted(path: Path) -> OnecatError:
    return OnecatError(
        f"{path} is a link; onecat would write where it leads",
        expected="a directory and files that onecat made itself",
        where=str(path),
        next_steps=[f"see where it leads: ls -l {path}", "remove it, or name another directory"],
        code=ExitCode.NO,
    )


def lock(descriptor: int, directory: Path, doing: str, say: Callable[[str], None]) -> None:
    """Lock an open file, which the kernel undoes when it is closed, also by a kill.

    doing: what another run does to `directory` when it has the lock ("pulls into"). say: told when the file system has
    no locks.

    Raises OnecatError (exit code 4) when another run has it, naming its process (`note_holder`); OSError.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 100, 0).decode("ascii", "replace").strip()
        raise OnecatError(
            f"another onecat (process {holder or '?'}) {doing} this directory",
            expected="one run at a time",
            where=str(directory),
            next_steps=["wait for it, or stop it with Ctrl-C: what it has is kept"],
            code=ExitCode.ROLLED_BACK,
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        say("this file system has no locks: do not start a second run into this directory")


def note_holder(descriptor: int) -> None:
    """Write this process into a file that it has locked. Raises OSError."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
