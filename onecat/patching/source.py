"""Source trees as patches see them: a folder, or changes in memory over another tree. Links are never followed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from onecat.errors import OnecatError

STAGING, RECORD = ".onecat-patching", ".onecat-patches.json"
"""Names at the root of a patched tree: the folder of an unfinished change, the record of what was applied."""


@dataclass(frozen=True)
class SourceFile:
    """A file's bytes and its permission bits."""

    content: bytes
    mode: int = 0o644

    @property
    def executable(self) -> bool:
        return bool(self.mode & 0o100)


class Source(Protocol):
    """A tree of files, named by paths with `/` from its root."""

    def read(self, path: str) -> SourceFile | None:
        """The file of that path, None when there is none. Raises OnecatError where a link is on the way."""
        ...


@dataclass(frozen=True)
class Directory:
    """The tree below a folder."""

    root: Path

    def read(self, path: str) -> SourceFile | None:
        place = self.locate(path)
        if place is None or not stat.S_ISREG(place.lstat().st_mode):
            return None
        with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:  # noqa: PTH123 - a descriptor
            return SourceFile(stream.read(), stat.S_IMODE(os.fstat(stream.fileno()).st_mode))

    def locate(self, path: str) -> Path | None:
        """Where that path lies if there is something. Raises OnecatError when it, or a folder above it, is a link."""
        place = self.root
        for part in PurePosixPath(check_path(path, str(self.root))).parts:
            place = place / part
            try:
                mode = place.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                return None
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"
                raise OnecatError(
                    f"{place} is {kind}",
                    expected="plain files and folders, as the source archive has them",
                    where=str(place),
                    next_steps=["unpack the source anew, into another folder"],
                )
        return place


class Overlay:
    """Changes in memory over another tree.

    changes: path to the new file, None where it is gone.
    """

    def __init__(self, base: Source) -> None:
        self.base = base
        self.changes: dict[str, SourceFile | None] = {}

    def read(self, path: str) -> SourceFile | None:
        return self.changes[path] if path in self.changes else self.base.read(path)


def check_path(path: str, where: str) -> str:
    """The path. Raises OnecatError when it leaves the tree, or is of git or onecat and no source file."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        raise OnecatError(f"{path} leads out of the source tree", expected="a path below the tree's root", where=where)
    if not path or "" in parts or "." in parts or "\0" in path:
        raise OnecatError(f"{path!r} is no path of a file", expected="a path below the tree's root", where=where)
    if ".git" in parts or parts[0] in (STAGING, RECORD):
        raise OnecatError(f"{path} is no source file", expected="a file of the source itself", where=where)
    return path
