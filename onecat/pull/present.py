"""Which files are there already: those that an earlier pull put in place, and others that are what the source has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onecat.errors import ExitCode, OnecatError
from onecat.pull.records import RemoteFile
from onecat.pull.state import PullState, Recorded

_READ_BYTES = 2**21


@dataclass(frozen=True)
class Present:
    """files: rows of what is there and whole, by path. missing: what is to be fetched. foreign: what is there, differs,
    and was not put there by a pull or was changed since."""

    files: dict[str, Recorded]
    missing: tuple[RemoteFile, ...]
    foreign: tuple[str, ...]


def look(
    directory: Path, files: Sequence[RemoteFile], state: PullState | None, trust: bool, say: Callable[[str], None]
) -> Present:
    """Compare a directory with the files of a source.

    Parameters:
        state: the record of the last pull there. trust: a file that nobody touched since then is not hashed again.
        say: told before a long file is hashed.
    """
    there: dict[str, Recorded] = {}
    missing, foreign = [], []
    for file in files:
        path = directory / file.path
        row = state.files.get(file.path) if state is not None else None
        if not path.exists() and not path.is_symlink():
            missing.append(file)
            continue
        is_ours = row is not None and path.is_file() and _untouched(path, row)
        found = _same(path, file, row if is_ours and trust else None, say) if path.is_file() else None
        if found is not None:
            there[file.path] = found
            continue
        missing.append(file)
        if not is_ours:
            foreign.append(file.path)
    return Present(there, tuple(missing), tuple(foreign))


def refuse_foreign(directory: Path, foreign: Sequence[str]) -> None:
    """Raises OnecatError for files that would be overwritten and are somebody's."""
    if foreign:
        raise OnecatError(
            f"{foreign[0]} is there and is not what the source has; no pull put it there, or it was changed since",
            expected="a new directory, or files that are the source's",
            where=str(directory / foreign[0]),
            details=[f"also {each}" for each in foreign[1:20]],
            next_steps=[
                f"keep it: add --exclude '{foreign[0]}'",
                "or have it replaced: add --replace",
            ],
            code=ExitCode.NO,
        )


def _untouched(path: Path, row: Recorded) -> bool:
    seen = path.stat()
    return (seen.st_size, seen.st_mtime_ns) == (row.size, row.modified)


def _same(path: Path, file: RemoteFile, row: Recorded | None, say: Callable[[str], None]) -> Recorded | None:
    """The row of a file that is what the source has; None when it is not, or that cannot be known."""
    seen = path.stat()
    if file.size is not None and file.size != seen.st_size:
        return None
    if row is not None and file.sha256 == row.sha256:
        return row
    if file.check is None:
        # The source tells no checksum: the record is of what was fetched, if the source's version is still that one.
        if file.size is None or row is None:
            return None
        return row if file.validator is None or file.validator == row.validator else None
    if seen.st_size > 2**28:
        say(f"checking {file.path}, which is there")
    sha256, blob = hashlib.sha256(), hashlib.sha1(f"blob {seen.st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while content := stream.read(_READ_BYTES):
            sha256.update(content)
            if file.check == "git-blob":
                blob.update(content)
    matches = sha256.hexdigest() == file.sha256 if file.check == "sha256" else blob.hexdigest() == file.blob
    return Recorded(seen.st_size, seen.st_mtime_ns, sha256.hexdigest(), file.check) if matches else None
