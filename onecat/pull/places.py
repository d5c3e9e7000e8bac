"""Where files may be put below the target directory: through no link that leads out of it, and over no directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from onecat.checkpoints.pulled import STATE_DIRECTORY
from onecat.errors import ExitCode, OnecatError


def check_places(directory: Path, paths: Iterable[str]) -> None:
    """Raises OnecatError when a file cannot or must not be put to one of the paths.

    That is where a folder on its way is a link out of `directory`, a file stands where a folder has to be, or a folder
    where the file has to be.
    """
    root = directory.resolve()
    parents: set[PurePosixPath] = set()
    for path in map(PurePosixPath, paths):
        parents.update(path.parents)
        place = directory / path
        if place.is_dir() and not place.is_symlink():
            raise _in_the_way(place, "directory", "file")
    for parent in parents:
        place = directory / parent
        real = place.resolve()
        if real != root and root not in real.parents:
            raise OnecatError(
                f"{place} is a link that leads out of the directory",
                expected="a directory of the model's own",
                where=str(real),
                next_steps=["remove that link, or pull into another directory"],
            )
        if not place.is_dir() and (place.exists() or place.is_symlink()):
            raise _in_the_way(place, "file", "directory")


def check_writable(directory: Path) -> None:
    """Raises OnecatError when this user may not make `directory`, or files in it: before anything is asked of a hub."""
    try:
        there = next(each for each in (directory.absolute(), *directory.absolute().parents) if each.exists())
        by_mode = os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)
        allowed = by_mode or not there.is_dir()  # a file in the way is told as what it is
        where = there
    except PermissionError as error:
        allowed, where = False, Path(error.filename or directory)
    if not allowed:
        raise OnecatError(
            f"you may not write to {where}",
            expected="a directory of your own",
            where=str(directory),
            next_steps=["pull into another directory, or check its owner and mode: ls -ld"],
        )


def _in_the_way(place: Path, is_there: str, wanted: str) -> OnecatError:
    return OnecatError(
        f"{place} is a {is_there}, and the source has a {wanted} of that name",
        expected=f"a {wanted}, or nothing",
        where=str(place),
        next_steps=["move it away, or pull into another directory"],
        code=ExitCode.NO,
    )


def state_directory(directory: Path) -> Path:
    """Where a pull into `directory` keeps its records."""
    return directory / STATE_DIRECTORY


def make_state_directory(directory: Path) -> Path:
    """Make it, if it is not there. Raises OnecatError when it is a link: the records would be written elsewhere."""
    folder = state_directory(directory)
    if not folder.is_symlink():
        folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise _planted(folder)
    return folder


def open_own(path: Path, flags: int) -> int:
    """Open a file of the state directory and make it if it is not there; a descriptor.

    Raises OnecatError when it is a link: it may lead to any file of this user. Raises OSError.
    """
    try:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _planted(path) from error


def _planted(path: Path) -> OnecatError:
    return OnecatError(
        f"{path} is a link; onecat writes its records there, and would write where the link leads",
        expected="a directory and files that onecat made itself",
        where=str(path),
        next_steps=[f"see where it leads: ls -l {path}", "remove it, or pull into another directory"],
        code=ExitCode.NO,
    )


def ignores_case(directory: Path) -> bool:
    """Whether the file system of a directory with a state directory holds `A` and `a` for one name."""
    return (directory / STATE_DIRECTORY.upper()).exists()
