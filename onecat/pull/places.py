"""Where files may be put below the target directory: through no link that leads out of it, and over no directory."""

from __future__ import annotations

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


def ignores_case(directory: Path) -> bool:
    """Whether the file system of a directory with a state directory holds `A` and `a` for one name."""
    return (directory / STATE_DIRECTORY.upper()).exists()
