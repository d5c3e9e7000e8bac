"""What a pull keeps in the target directory: its lock, its parts, and a record that says whether all is whole.

All of it lies in DIRECTORY/.onecat-pull. The record (state.json, schema onecat.pull-state/1) is written before the
first file and says `"complete": false` until the last one is in its place; `onecat.checkpoints` reads it. What comes
into its place meanwhile is a line of finished.jsonl: to write the whole record for each of many small files takes
longer than to fetch them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from onecat.checkpoints.pulled import STATE_FILE, STATE_SCHEMA
from onecat.files import read_json, write_json
from onecat.own_files import lock, make_own_directory, note_holder, open_own
from onecat.pull.places import state_directory

FINISHED_FILE = "finished.jsonl"


@dataclass(frozen=True)
class Recorded:
    """A file that was put in place. modified: its st_mtime_ns then, which tells that nobody changed it since."""

    size: int
    modified: int
    sha256: str
    checked: str | None
    validator: str | None = None


@dataclass(frozen=True)
class PullState:
    """source, revision: what the directory is made from. files: what is in its place, by path.

    manifest: SHA-256 (hex) of the SHA256SUMS that a pull wrote; None where none was written.
    """

    source: str
    revision: str | None
    complete: bool
    files: Mapping[str, Recorded]
    manifest: str | None = None


def read_state(directory: Path) -> PullState | None:
    """The record of a directory; None where no pull was, or its record is damaged (all is checked anew then)."""
    try:
        document = read_json(state_directory(directory) / STATE_FILE)
        if not isinstance(document, dict) or document.get("schema") != STATE_SCHEMA:
            return None
        files = {str(path): Recorded(**row) for path, row in document["files"].items()}
        finished = dict(_finished(state_directory(directory) / FINISHED_FILE))
        return PullState(
            str(document["source"]),
            document["revision"],
            bool(document["complete"]),
            {**files, **finished},
            document.get("manifest"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _finished(path: Path) -> Iterator[tuple[str, Recorded]]:
    """The lines of files that came into their place; a last line that a kill cut off counts for nothing."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                yield str(row.pop("path")), Recorded(**row)


def note_finished(directory: Path, path: str, row: Recorded) -> None:
    """Note a file that comes into its place next: noted first, it is never taken for somebody else's."""
    descriptor = open_own(state_directory(directory) / FINISHED_FILE, os.O_WRONLY | os.O_APPEND)
    with open(descriptor, "a", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor, not a path
        stream.write(json.dumps({"path": path, **asdict(row)}) + "\n")


def write_state(directory: Path, state: PullState) -> None:
    """Write the record atomically; it holds what finished.jsonl held."""
    files = {path: asdict(row) for path, row in sorted(state.files.items())}
    document = {
        "schema": STATE_SCHEMA,
        "complete": state.complete,
        "source": state.source,
        "revision": state.revision,
        "manifest": state.manifest,
        "files": files,
    }
    write_json(state_directory(directory) / STATE_FILE, document, 0o644)
    (state_directory(directory) / FINISHED_FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def only_pull(directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds the directory's lock, so that no second pull writes there. Raises OnecatError when another one does.

    The kernel gives the lock of a killed process back by itself.
    """
    descriptor = open_own(make_own_directory(state_directory(directory)) / "lock", os.O_RDWR)
    try:
        lock(descriptor, directory, "pulls into", say)
        note_holder(descriptor)
        yield
    finally:
        os.close(descriptor)
