"""What a person is told when a run cannot go on."""

from __future__ import annotations

import errno
from pathlib import Path

from onecat.errors import ExitCode, OnecatError

_AGAIN = "then type the same command again: it goes on from here"


def how_to_go_on(target: Path) -> str:
    """What is left of a run that was broken off, for a line of its own."""
    return f"what is made is kept in {target}: the same command goes on, or remove it"


def told(error: OSError, target: Path, *, kept: bool) -> OnecatError:
    """The failure of the system under a run, as what is the matter and what to do. kept: whether a run has begun."""
    where = str(error.filename or target)
    found, expected, step = {
        errno.ENOSPC: ("the disk is full", "room for the rest", "free some space there"),
        errno.EDQUOT: ("this user's quota on the disk is used up", "room for the rest", "free some space there"),
        errno.EFBIG: (
            "a file may not become that large here",
            "no limit below the size of a weight file",
            "see ulimit -f, and which file system it is: df -T",
        ),
        errno.EIO: ("the disk failed to read or to write", "a sound disk", "see what the kernel says: dmesg"),
        errno.EACCES: ("a file may not be read or written", None, "check the owner and mode of that path: ls -l"),
        errno.EPERM: ("a file may not be read or written", None, "check the owner and mode of that path: ls -l"),
        errno.EROFS: ("the file system can only be read", None, "mount it for writing"),
        errno.ENOENT: ("a file is gone", "nobody else works in these directories", "see who removed it"),
        errno.ESTALE: ("a file is gone", "nobody else works in these directories", "see who removed it"),
    }.get(error.errno or 0, (error.strerror or str(error), None, "see to that"))
    return OnecatError(
        f"{found}" + ("" if error.strerror is None or found == error.strerror else f" ({error.strerror})"),
        expected=expected,
        where=where,
        details=[how_to_go_on(target)] if kept else [],
        next_steps=[f"{step}, {_AGAIN}"],
        code=ExitCode.NEEDS_PERSON,
    )


def refused_contents(module: str, error: ValueError, source: Path, target: Path) -> OnecatError:
    """The failure of a step that cannot be made of what its tensors hold."""
    return OnecatError(
        f"{module}: {error}",
        where=str(source),
        details=[f"what is made is kept in {target}: remove it to have the room back"],
        next_steps=[
            "take another checkpoint; the same command would end in the same way",
            "or leave this weight as it is, where the command has --ignore; add --restart then",
        ],
        code=ExitCode.NO,
    )


def no_memory(module: str, target: Path) -> OnecatError:
    """The failure of a step for which there is not enough memory."""
    return OnecatError(
        f"{module}: there is not enough memory for its tensors",
        expected="about three times the largest tensor, and 300 MB",
        where=str(target),
        details=[how_to_go_on(target)],
        next_steps=[f"see what takes it: free -h; {_AGAIN}"],
        code=ExitCode.NEEDS_PERSON,
    )
