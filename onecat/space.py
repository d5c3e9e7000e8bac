"""Whether what is to be written fits onto the target's file system, before anything is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onecat.errors import ExitCode, OnecatError


@dataclass(frozen=True)
class Room:
    """What a file system has left for this user. files: inodes; None where it makes them as they are needed (btrfs)."""

    bytes: int
    files: int | None


def room(directory: Path) -> Room:
    """The room on the file system of a directory, or of the nearest one above that is there (statvfs(3))."""
    while not directory.exists():
        directory = directory.absolute().parent
    seen = os.statvfs(directory)
    return Room(seen.f_bavail * seen.f_frsize, seen.f_favail if seen.f_files else None)


def margin(missing: int) -> int:
    """Bytes that are to stay free: for the file system's own tables and for who else writes there."""
    return min(max(missing // 50, 2**20), 256 * 2**20)


def check_room(
    directory: Path, left: Room, missing: int, files: int, *, done: str = "fetched", less: Sequence[str] = ()
) -> None:
    """Raises OnecatError (exit code 1) when `missing` bytes in so many new files do not fit.

    done: what is to happen with them, for the message. less: further steps that a person may take.
    """
    wanted = missing + margin(missing) if missing else 0
    if wanted > left.bytes:
        raise OnecatError(
            f"not enough room: {gigabytes(missing)} are to be {done} and {gigabytes(left.bytes)} are free",
            expected=f"{gigabytes(wanted)} free",
            where=str(directory),
            next_steps=[
                f"free {gigabytes(wanted - left.bytes)} there, or name a directory on a larger disk",
                *less,
            ],
            code=ExitCode.NO,
        )
    if left.files is not None and files + 16 > left.files:
        raise OnecatError(
            f"the file system can hold {left.files} more files (inodes), and {files} are to be {done}",
            expected=f"{files + 16} free inodes",
            where=str(directory),
            next_steps=[f"see df -i {directory}, and remove files that are not needed"],
            code=ExitCode.NO,
        )


def gigabytes(count: int) -> str:
    """Bytes for people, in decimal units as hubs show them."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.2f} {unit}" if count < 10 * size else f"{count / size:.1f} {unit}"
    return f"{count} bytes"
