"""Many files of a tree changed together: all of them or none, also when the process is killed in between.

The new files are written beside the tree's own first, then a journal, and only then are they renamed into place.
A journal that is found later is carried out to its end; new files without a journal are thrown away.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from onecat.errors import ExitCode, OnecatError
from onecat.files import naming
from onecat.patching.source import RECORD, STAGING, Directory, SourceFile

FORWARD, BACK = "journal.json", "journal-back.json"


@contextlib.contextmanager
def exclusively(root: Path) -> Iterator[None]:
    """Hold the tree against another onecat that patches it. Raises OnecatError when one does."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OnecatError(
                "another onecat patches this tree now", where=str(root), next_steps=["wait until it has ended"]
            ) from error
        except OSError as error:
            # Some network file systems lock no folders; there one person works on a tree at a time.
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
        yield
    finally:
        os.close(descriptor)


def is_interrupted(root: Path) -> bool:
    """Whether a change of this tree was cut off after its journal was written."""
    return any((root / STAGING / name).is_file() for name in (FORWARD, BACK))


def recover(root: Path) -> bool:
    """Bring a change that was cut off to its end, or throw its left-overs away; whether files were changed."""
    staging = root / STAGING
    if not staging.is_dir() or staging.is_symlink():
        return False
    interrupted = is_interrupted(root)
    if (staging / BACK).is_file():
        _roll_back(root, _read_journal(root, staging / BACK))
    elif (staging / FORWARD).is_file():
        _roll_forward(root, _read_journal(root, staging / FORWARD))
    _finish(staging)
    return interrupted


def commit(root: Path, writes: Mapping[str, SourceFile | None], emptied: Sequence[str] = ()) -> None:
    """Give a tree its new files.

    Parameters:
        writes: path to the new file, None for one that goes. emptied: folders that go too if nothing is left in them.

    Raises:
        OSError: it could not be written; the tree is as it was.
        OnecatError: neither the new state nor the old one could be reached (exit code 5).
    """
    staging = root / STAGING
    made = new_directories(root, [path for path, file in writes.items() if file is not None])
    _check_places(root, writes)
    last_first = sorted(emptied, key=len, reverse=True)
    journal: dict[str, Any] = {"writes": {}, "removed": [], "kept": [], "made": made, "emptied": last_first}
    staging.mkdir()
    try:
        for number, (path, file) in enumerate(sorted(writes.items())):
            target = root / path
            if target.exists():
                _keep_old(target, staging / f"{number}.old")
                journal["kept"].append(number)
            if file is None:
                journal["removed"].append([number, path])
            else:
                journal["writes"][str(number)] = path
                _stage(staging / f"{number}.new", file, target)
        _write_durably(staging / "journal.part", json.dumps(journal).encode())
        (staging / "journal.part").rename(staging / FORWARD)
        _sync_directory(staging)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    try:
        _roll_forward(root, journal)
    except OSError as failure:
        try:
            (staging / FORWARD).rename(staging / BACK)
            _roll_back(root, journal)
        except OSError as error:
            raise OnecatError(
                f"a change of the tree failed in the middle ({failure}), and so did taking it back ({error})",
                where=str(root),
                next_steps=["mend the cause, then type the same command again: it goes on from here"],
                code=ExitCode.NEEDS_PERSON,
            ) from error
        _finish(staging)
        raise
    _finish(staging)


def new_directories(root: Path, paths: Sequence[str]) -> list[str]:
    """The folders that must be made for these files, upper ones first."""
    parents = {str(parent) for path in paths for parent in PurePosixPath(path).parents if str(parent) != "."}
    return sorted(parent for parent in parents if not (root / parent).is_dir())


def _read_journal(root: Path, file: Path) -> dict[str, Any]:
    """A journal whose paths are all in the tree. Raises OnecatError (exit code 5) when it is damaged."""
    tree = Directory(root)
    try:
        journal = json.loads(file.read_bytes())
        for path in [*journal["writes"].values(), *(path for _, path in journal["removed"])]:
            if path != RECORD:
                tree.locate(path)
        for path in [*journal["made"], *journal["emptied"]]:
            tree.locate(path)
        if not all(number.isdigit() for number in journal["writes"]) or not isinstance(journal["kept"], list):
            raise ValueError("its numbers")
    except (ValueError, KeyError, TypeError, AttributeError, OnecatError) as error:
        raise OnecatError(
            "the journal of a change that was cut off is damaged",
            where=str(file),
            details=[error.found if isinstance(error, OnecatError) else f"{type(error).__name__}: {error}"],
            next_steps=["unpack the source anew, into another folder"],
            code=ExitCode.NEEDS_PERSON,
        ) from error
    return dict(journal)


def _check_places(root: Path, writes: Mapping[str, SourceFile | None]) -> None:
    """Refuse, before anything is changed, a folder where a file is to be, and a folder that cannot be written."""
    tree = Directory(root)
    for path, file in writes.items():
        place = tree.locate(path) if path != RECORD else None
        if file is not None and place is not None and place.is_dir():
            raise OnecatError(f"{path} is a folder", expected="a file or nothing", where=str(place))
        parent = root / path
        while not parent.is_dir():
            parent = parent.parent
            if parent.is_file() and writes.get(parent.relative_to(root).as_posix(), ...) is not None:
                raise OnecatError(f"{parent} is a file", expected=f"a folder for {path}", where=str(parent))
    for folder in {root, *((root / path).parent for path in writes)}:
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def _keep_old(target: Path, kept: Path) -> None:
    try:
        os.link(target, kept)
    except OSError:  # a file system without links, or a file of another user
        shutil.copy2(target, kept)


def _stage(staged: Path, file: SourceFile, target: Path) -> None:
    _write_durably(staged, file.content)
    if target.exists():
        owner = target.stat()
        if (owner.st_uid, owner.st_gid) != (staged.stat().st_uid, staged.stat().st_gid):
            os.chown(staged, owner.st_uid, owner.st_gid)
    staged.chmod(file.mode)


def _write_durably(path: Path, content: bytes) -> None:
    with naming(path), path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _roll_forward(root: Path, journal: Mapping[str, Any]) -> None:
    for _, path in journal["removed"]:
        (root / path).unlink(missing_ok=True)
    for folder in journal["made"]:
        (root / folder).mkdir(exist_ok=True)
    for number, path in journal["writes"].items():
        staged = root / STAGING / f"{number}.new"
        if staged.exists():
            os.replace(staged, root / path)  # noqa: PTH105 - the one call that a test cuts off
    _remove_empty(root, journal["emptied"])
    _sync_parents(root, [*journal["writes"].values(), *(path for _, path in journal["removed"])])


def _roll_back(root: Path, journal: Mapping[str, Any]) -> None:
    numbered = [*((int(number), path) for number, path in journal["writes"].items()), *journal["removed"]]
    for folder in sorted(journal["emptied"], key=len):
        (root / folder).mkdir(exist_ok=True)
    for number, path in numbered:
        kept = root / STAGING / f"{number}.old"
        if kept.exists():
            kept.replace(root / path)
        elif number not in journal["kept"]:
            (root / path).unlink(missing_ok=True)
    _remove_empty(root, sorted(journal["made"], key=len, reverse=True))
    _sync_parents(root, [path for _, path in numbered])


def _remove_empty(root: Path, folders: Sequence[str]) -> None:
    for folder in folders:
        try:
            (root / folder).rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise


def _sync_parents(root: Path, paths: Sequence[str]) -> None:
    """Let the disk have the renames before the journal goes."""
    for folder in {(root / path).parent for path in paths}:
        if folder.is_dir():
            _sync_directory(folder)


def _finish(staging: Path) -> None:
    """Remove the journal first: what is left of the folder then means nothing."""
    for name in (FORWARD, BACK):
        (staging / name).unlink(missing_ok=True)
    shutil.rmtree(staging, ignore_errors=True)
