"""The folder in the target that says what is being made there, and the lock that lets one run at a time do it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onecat.checkpoints.rewritten import REWRITE_DIRECTORY, REWRITE_FILE, REWRITE_SCHEMA
from onecat.errors import ExitCode, OnecatError
from onecat.files import read_json, write_json
from onecat.nvfp4.rewriting.places import remove_files
from onecat.nvfp4.rewriting.progress import Say
from onecat.nvfp4.rewriting.source import Fingerprint
from onecat.own_files import lock, make_own_directory, note_holder, open_own

LOCK = "lock"


@dataclass(frozen=True)
class State:
    """What a run makes. version: of onecat. plan: `layout.plan_digest`. writes: the names of all its files."""

    source: str
    version: str
    identity: Mapping[str, Any]
    files: Mapping[str, Fingerprint]
    plan: str
    writes: tuple[str, ...]


def state_directory(target: Path) -> Path:
    """Where a run keeps its records and what is not whole yet."""
    return target / REWRITE_DIRECTORY


def has_state(target: Path) -> bool:
    """Whether a run is under way there, or was broken off."""
    return (state_directory(target) / REWRITE_FILE).is_file()


def read_state(target: Path) -> State | None:
    """What is being made there; None when that is not known, because the record is damaged or of a later onecat."""
    try:
        row = read_json(state_directory(target) / REWRITE_FILE)
        if not isinstance(row, dict) or row.pop("schema", None) != REWRITE_SCHEMA:
            return None
        files = {str(name): Fingerprint(**each) for name, each in row.pop("files").items()}
        return State(files=files, writes=tuple(map(str, row.pop("writes"))), **row)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def write_state(target: Path, state: State) -> None:
    """Write the record, atomically. From then on the target counts as not finished."""
    write_json(state_directory(target) / REWRITE_FILE, {"schema": REWRITE_SCHEMA, **asdict(state)}, 0o644)
    sync_directory(state_directory(target))
    sync_directory(target)


def end_state(target: Path) -> None:
    """Remove the record: from now on the target counts as finished."""
    (state_directory(target) / REWRITE_FILE).unlink()
    sync_directory(state_directory(target))


def begin_anew(target: Path, there: State | None) -> None:
    """Remove what an unfinished run has made, and at the last its record."""
    clear(target)
    remove_files(target, there.writes if there is not None else ())
    end_state(target)


def clear(target: Path) -> None:
    """Remove everything of the state folder but the record and the lock."""
    for each in state_directory(target).iterdir():
        if each.name not in (LOCK, REWRITE_FILE):
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()


def refuse_another(target: Path, there: State | None, wanted: State) -> None:
    """Raises OnecatError when what is being made in the target is not what is wanted, saying what differs."""
    begin_anew = "or begin anew, throwing away what it has made: add --restart"
    if there is None:
        raise OnecatError(
            "an unfinished run has left a record there that this onecat cannot read",
            where=str(state_directory(target) / REWRITE_FILE),
            next_steps=["begin anew, throwing away what it has made: add --restart"],
            code=ExitCode.NO,
        )
    if changed := _differences(there.files, wanted.files):
        name = next(iter(changed))
        what = "is another file now" if name in there.files and name in wanted.files else "was not there then"
        raise OnecatError(
            f"{name} of the source {'is gone' if name not in wanted.files else what}: "
            "an unfinished run has made a part of the new checkpoint from what was there before",
            expected="the source as that run read it (sizes, times and headers)",
            where=str(target),
            details=[f"also {each}" for each in list(changed)[1:20]],
            next_steps=["bring the source back to what it was, and type the same command again", begin_anew],
            code=ExitCode.NO,
        )
    differing = _differences({**there.identity, "onecat": there.version}, {**wanted.identity, "onecat": wanted.version})
    if differing or there.plan != wanted.plan:
        lines = [f"{key}: {then} then, {now} now" for key, (then, now) in differing.items()]
        what = lines[0] if lines else "other tensors, other files or another config.json"
        raise OnecatError(
            f"an unfinished run makes something else there: {what}",
            expected="the same source and the same options, or another directory",
            where=str(target),
            details=lines[1:20],
            next_steps=["go on with that one: type its command again", begin_anew],
            code=ExitCode.NO,
        )


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    def told(rows: Mapping[str, Any], key: str) -> str:
        text = json.dumps(rows[key], default=str) if key in rows else "not given"
        return text if len(text) <= 60 else f"{text[:57]}..."

    keys = sorted({*then, *now})
    return {
        key: (told(then, key), told(now, key))
        for key in keys
        if (key in then) != (key in now) or (key in then and then[key] != now[key])
    }


@contextlib.contextmanager
def only_run(target: Path, say: Say) -> Iterator[None]:
    """Make the target and hold its lock, so that no second run writes there. Raises OnecatError when one does.

    The kernel gives the lock of a killed process back by itself. At the end nothing of ours is left where no run is
    under way: none was begun, or it has come to its end.
    """
    folder = state_directory(target)
    was_there = target.exists()
    stream = _locked(folder, say)
    try:
        yield
    finally:
        is_over = not has_state(target)
        if is_over:
            clear(target)
            (folder / LOCK).unlink(missing_ok=True)
        os.close(stream)  # only then: NFS keeps the name of an open file in another form
        if is_over:
            _remove_if_empty(folder)
            if not was_there:
                _remove_if_empty(target)


def _remove_if_empty(directory: Path) -> None:
    """Remove a directory unless something is in it: the new checkpoint, or what the next run has made by now."""
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise


def _locked(folder: Path, say: Say) -> int:
    """A descriptor of the lock file, locked; the file is there, too, and not one that a run removed at its end."""
    while True:
        make_own_directory(folder)
        try:
            descriptor = open_own(folder / LOCK, os.O_RDWR)
        except FileNotFoundError:  # a run came to its end just now
            continue
        try:
            lock(descriptor, folder.parent, "writes a checkpoint into", say)
            if _is_at(descriptor, folder / LOCK):
                note_holder(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def sync_directory(path: Path) -> None:
    """Bring the names in a directory to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
