"""Which lock file a build keeps to, and how, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.images.lock_session import LockMode, LockSession

LockOption = Annotated[
    Path | None,
    typer.Option("--lock", metavar="FILE", help="Lock file [onecat.lock beside onecat.yaml, or one that is here]."),
]
LockedOption = Annotated[
    bool, typer.Option("--locked", help="Refuse to build anything that is not as the lock file says.")
]
UpdateOption = Annotated[bool, typer.Option("--update-lock", help="Build from what there is now, and lock that.")]


def lock_file(lock: Path | None, configuration: Path | None, asked: bool) -> Path | None:
    """The lock file of a build; None for a build without one.

    Parameters:
        lock: the one that is named. configuration: the onecat.yaml that the build follows, if it follows one. asked:
            whether the command line speaks of a lock.
    """
    from onecat.images.lock_file import FILE_NAME

    if lock is not None:
        return lock
    if configuration is not None:
        return configuration.parent / FILE_NAME
    here = Path(FILE_NAME)
    return here if asked or here.is_file() else None


def lock_session(
    profile: Profile,
    runtime: str,
    *,
    lock: Path | None,
    configuration: Path | None,
    locked: bool,
    update: bool,
    looks: bool,
) -> LockSession | None:
    """The lock of a build, as its options say. Raises OnecatError (exit code 2) for options that exclude each other."""
    from onecat.errors import OnecatError
    from onecat.images.lock_session import LockSession
    from onecat.paths import home

    if locked and update:
        raise OnecatError("--locked and --update-lock exclude each other", expected="one of them")
    path = lock_file(lock, configuration, locked or update)
    if path is None:
        return None
    mode: LockMode = "locked" if locked else "update" if update else "record"
    return LockSession(path, profile, home(), mode, "native" if runtime == "native" else "container", looks=looks)
