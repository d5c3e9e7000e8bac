"""The store of verified wheels: every file in it has the hash its lock names.

A file may come from anywhere (a folder of ONECAT_WHEELS, any index or folder of pip's configuration) as long as its
hash matches.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import OnecatError
from onecat.files import scratch_directory, stream_sha256, write_atomically
from onecat.images.disk import megabytes, out_of_space_told, run_logged
from onecat.images.lock import EngineLock, LockedFile
from onecat.images.pip import clean_environment, download_command, download_error, requirement_line

if TYPE_CHECKING:
    from onecat.paths import Home

Report = Callable[[str], None]

CHUNK_BYTES = 100_000_000
REPORT_SECONDS = 5.0
FILE_COST_BYTES = 3_000_000  # what one more file costs in download time, as bytes (measured here: 0.1 s at 30 MB/s)


@dataclass(frozen=True)
class WheelStore:
    """A folder of verified wheels.

    directory: where they lie.
    folders: more folders that may supply files (ONECAT_WHEELS).
    recorded: JSON file with the hashes recorded at first use, for files whose lock row has none.
    """

    directory: Path
    folders: tuple[Path, ...]
    recorded: Path

    def path(self, row: LockedFile) -> Path:
        return self.directory / row.file

    def with_recorded_hash(self, row: LockedFile) -> LockedFile:
        """The row, completed by the hash recorded at first use where the lock has none."""
        if row.sha256 is not None:
            return row
        return replace(row, sha256=self.recorded_hashes().get(row.file))

    def recorded_hashes(self) -> dict[str, str]:
        """File name -> SHA-256 in hex, as recorded at first use. Raises OnecatError when the record is damaged."""
        if not self.recorded.is_file():
            return {}
        try:
            return {str(name): str(value) for name, value in json.loads(self.recorded.read_text("utf-8")).items()}
        except (ValueError, AttributeError) as error:
            raise OnecatError(
                "the record of hashes seen at first use is damaged",
                where=str(self.recorded),
                expected="a JSON object of file names and SHA-256 values",
                next_steps=["repair it from a backup, or remove it to trust the next download again"],
            ) from error

    def record(self, hashes: Mapping[str, str]) -> dict[str, str]:
        """Record hashes (hex) of files that were seen for the first time. Returns those that were not recorded yet.

        What other processes record at the same time is kept.
        """
        if hashes.items() <= self.recorded_hashes().items():
            return {}
        self.recorded.parent.mkdir(parents=True, exist_ok=True)
        with self.recorded.with_name(f".{self.recorded.name}.lock").open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            known = self.recorded_hashes()
            new = {file: sha256 for file, sha256 in hashes.items() if known.get(file) != sha256}
            write_atomically(self.recorded, json.dumps(known | new, indent=2, sort_keys=True) + "\n", 0o644)
        return new

    def holds(self, row: LockedFile) -> bool:
        """Whether the file is here with the right hash. Reads the whole file."""
        row = self.with_recorded_hash(row)
        path = self.path(row)
        return row.sha256 is not None and path.is_file() and file_sha256(path) == row.sha256


def wheel_store(home: Home) -> WheelStore:
    """The store of this user. Raises OnecatError when a folder named in ONECAT_WHEELS is missing."""
    return WheelStore(home.wheels, wheel_folders(os.environ), home.data / "recorded-hashes.json")


def wheel_folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders named in ONECAT_WHEELS (separated by `:`). Raises OnecatError when one of them is missing."""
    folders = tuple(Path(text).expanduser() for text in environment.get("ONECAT_WHEELS", "").split(":") if text)
    for folder in folders:
        if not folder.is_dir():
            raise OnecatError(
                "a folder named in ONECAT_WHEELS does not exist",
                where=str(folder),
                next_steps=["correct or unset ONECAT_WHEELS"],
            )
    return folders


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hex, read in pieces."""
    with path.open("rb") as stream:
        return stream_sha256(stream)


def chunks(rows: Sequence[LockedFile], lock: EngineLock, limit: int = CHUNK_BYTES) -> list[list[LockedFile]]:
    """Rows in their order, in groups of at most `limit` bytes; rows of pinned projects and without a hash alone."""
    groups: list[list[LockedFile]] = []
    filled = limit
    for row in rows:
        size = lock.estimated_size(row)
        alone = row.sha256 is None or row.project in lock.pinned
        if alone or filled + size > limit:
            groups.append([])
            filled = 0
        groups[-1].append(row)
        filled = limit if alone else filled + size
    return groups


@dataclass(frozen=True)
class Downloader:
    """How missing files are downloaded.

    pip: an interpreter with pip, of any version. python: the CPython version the files are for, as "3.11".
    log: file that pip's output is appended to. offline: nothing may be downloaded.
    """

    pip: Path
    python: str
    log: Path
    offline: bool = False


def fetch(lock: EngineLock, store: WheelStore, downloader: Downloader, report: Report) -> tuple[LockedFile, ...]:
    """Bring every file of the lock for the downloader's Python version into the store; what is there already stays.

    Returns the rows, each with its hash.

    Raises:
        OnecatError: a file that nobody has, that may not be downloaded, or with another hash (exit code 2), no index
            could be reached (3), the disk is full (5). What has been fetched until then stays in the store.
    """
    rows = [store.with_recorded_hash(row) for row in lock.for_python(downloader.python)]
    with out_of_space_told(store.directory):
        store.directory.mkdir(parents=True, exist_ok=True)
        missing = [row for row in rows if not store.holds(row) and not _take_from_folders(row, store, report)]
    if not missing:
        report(f"wheels: all {len(rows)} files are here and verified ({store.directory})")
    elif downloader.offline:
        raise _not_here(lock, missing, store)
    else:
        total = sum(lock.estimated_size(row) for row in missing)
        here = len(rows) - len(missing)
        report(f"wheels: {here} of {len(rows)} are here; downloading {len(missing)}, {megabytes(total)}")
    meter = Meter(lock, missing, report)
    for group in chunks(missing, lock):
        _download(lock, group, store, downloader, report, meter)
        meter.finish(group)
    return tuple(store.with_recorded_hash(row) for row in rows)


def _not_here(lock: EngineLock, missing: Sequence[LockedFile], store: WheelStore) -> OnecatError:
    size = sum(lock.estimated_size(row) for row in missing)
    return OnecatError(
        f"{len(missing)} wheels ({megabytes(size)}) are not on this machine, and --offline forbids to download them",
        expected=f"all wheels of {lock.engine} {lock.version} in {store.directory}",
        details=[row.file for row in missing[:3]],
        next_steps=[
            "bring them in a bundle: onecat bundle create where there is a network, onecat bundle load here",
            "or put them into a folder and name the folder in ONECAT_WHEELS",
            "or build without --offline",
        ],
    )


class Meter:
    """Reports how far a download is, at most every REPORT_SECONDS."""

    def __init__(self, lock: EngineLock, rows: Sequence[LockedFile], report: Report) -> None:
        self.lock, self.report = lock, report
        self.total, self.done = sum(map(lock.estimated_size, rows)), 0
        self.files, self.files_done = len(rows), 0
        self.started = self.reported = time.monotonic()

    def show(self, partly: int, always: bool = False) -> None:
        now, done = time.monotonic(), min(self.done + partly, self.total)
        if done and (always or now - self.reported >= REPORT_SECONDS):
            self.reported = now
            work = done + self.files_done * FILE_COST_BYTES
            left = (now - self.started) * ((self.total + self.files * FILE_COST_BYTES) / work - 1)
            percent = done * 100 // max(self.total, 1)
            # So little says nothing about how long the rest takes.
            told = f", {_about(left)} left" if percent else ""
            self.report(f"wheels: {megabytes(done)} of {megabytes(self.total)} ({percent} %){told}")

    def finish(self, rows: Sequence[LockedFile]) -> None:
        self.done += sum(map(self.lock.estimated_size, rows))
        self.files_done += len(rows)
        self.show(0, always=self.files_done == self.files)


def _about(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 100 else f"about {seconds / 60:.0f} min"


def _take_from_folders(row: LockedFile, store: WheelStore, report: Report) -> bool:
    for folder in store.folders:
        source = folder / row.file
        if not source.is_file():
            continue
        found = file_sha256(source)
        if row.sha256 not in (None, found):
            report(f"wheels: not used: {source} has sha256 {found[:12]}..., the lock {str(row.sha256)[:12]}...")
            continue
        partial = store.directory / f".{row.file}.{os.getpid()}"
        try:
            with out_of_space_told(store.directory):
                shutil.copyfile(source, partial)
            _keep(partial, row, found, store, report)
        finally:
            partial.unlink(missing_ok=True)
        return True
    return False


def _keep(partial: Path, row: LockedFile, sha256: str, store: WheelStore, report: Report) -> None:
    """Move a verified file to its place; record its hash when the lock has none."""
    if row.sha256 is None:
        store.record({row.file: sha256})
        report(
            f"wheels: {row.file}: its hash could not be seen when onecat's lock was made; trusted at this first use "
            f"and recorded as sha256 {sha256} in {store.recorded}"
        )
    partial.replace(store.path(row))


def _download(
    lock: EngineLock,
    group: Sequence[LockedFile],
    store: WheelStore,
    downloader: Downloader,
    report: Report,
    meter: Meter,
) -> None:
    with out_of_space_told(store.directory), scratch_directory(store.directory) as scratch:
        (scratch / "temporary").mkdir()
        requirements = scratch / "requirements.txt"
        requirements.write_text("".join(map(requirement_line, group)), encoding="utf-8")
        command = download_command(
            downloader.pip,
            requirements,
            scratch / "files",
            hashed=all(row.sha256 for row in group),
            lock=lock,
            python=downloader.python,
        )
        environment = clean_environment(os.environ) | {"TMPDIR": str(scratch / "temporary")}
        code, output = run_logged(command, environment, downloader.log, lambda: meter.show(_size_below(scratch)))
        got: dict[str, Path] = {}
        for path in sorted((scratch / "files").glob("*.whl")):
            got[file_sha256(path)] = path
            if len(group) == 1 and group[0].sha256 is None and path.name == group[0].file:
                got[""] = path
        for row in group:
            found = got.get(row.sha256 or "")
            if found is None:
                raise download_error(lock, row, group, code, output, store.directory, downloader.log)
            _keep(found, row, row.sha256 or file_sha256(found), store, report)


def _size_below(directory: Path) -> int:
    size = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += Path(parent, name).stat().st_size
    return size
