"""What an interrupted run of hashing had finished, kept in a file until a run is whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from onecat.files import write_atomically

SCHEMA = "onecat.hash-state/1"
EVERY_SECONDS = 2.0


@dataclass(frozen=True)
class Stamp:
    """What tells that a file is the one that was hashed: its size, time of change and number on its disk."""

    size: int
    mtime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file, None when there is none."""
    try:
        return Stamp.of(path.stat())
    except OSError:
        return None


class HashState:
    """Finished checksums of one directory.

    They only carry an interrupted run on: `forget` ends them when a run is whole, so that the next one reads every
    file again, and finds what has rotted on the disk without a change of its time.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._written = clock()
        self._rows: dict[str, dict[str, str | int]] = _read(path)

    @classmethod
    def for_directory(cls, directory: Path, cache: Path) -> HashState:
        """The state of a model directory, kept below onecat's cache; the directory itself may be read-only."""
        name = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:24]
        return cls(cache / "hashes" / f"{name}.json")

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, name: str, algorithm: str, stamp: Stamp) -> str | None:
        """The checksum of a file that is still what it was; None when it is not known."""
        row = self._rows.get(f"{algorithm}:{name}")
        if row is None or any(row.get(key) != value for key, value in asdict(stamp).items()):
            return None
        digest = row.get("digest")
        return digest if isinstance(digest, str) else None

    def put(self, name: str, algorithm: str, stamp: Stamp, digest: str) -> None:
        """Keep a checksum; written to disk at most every two seconds, and by `save`."""
        self._rows[f"{algorithm}:{name}"] = {**asdict(stamp), "digest": digest}
        if self._clock() - self._written >= EVERY_SECONDS:
            self.save()

    def save(self) -> None:
        """Write what is known. Raises OSError when it cannot be written."""
        self._written = self._clock()
        if self._path is not None and self._rows:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps({"schema": SCHEMA, "files": self._rows}))

    def forget(self) -> None:
        """Drop all, as after a whole run."""
        self._rows = {}
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()


def _read(path: Path | None) -> dict[str, dict[str, str | int]]:
    if path is None:
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}  # it only saves time
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return {}
    files = document.get("files")
    return {key: row for key, row in files.items() if isinstance(row, dict)} if isinstance(files, dict) else {}
