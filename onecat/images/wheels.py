"""The store of verified wheels: every file in it has the hash its lock names.

A file may come from anywhere (a folder of ONECAT_WHEELS, any index or folder of pip's configuration) as long as its
hash matches.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onecat.errors import OnecatError
from onecat.images.disk import megabytes, out_of_space_told, run_logged, write_atomically
from onecat.images.lock import EngineLock, LockedFile
from onecat.images.pip import clean_environment, download_command, download_error, requirement_line

Report = Callable[[str], None]

CHUNK_BYTES = 100_000_000
REPORT_SECONDS = 5.0


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
        """The row, completed by the hash and size recorded at first use where the lock has none."""
        if row.sha256 is not None or not self.recorded.is_file():
            return row
        known = json.loads(self.recorded.read_text(encoding="utf-8")).get(row.file)
        return replace(row, sha256=known["sha256"], size=known["size"]) if known else row

    def holds(self, row: LockedFile) -> bool:
        """Whether the file is here with the right hash. Reads the whole file."""
        row = self.with_recorded_hash(row)
        path = self.path(row)
        return row.sha256 is not None and path.is_file() and file_sha256(path) == row.sha256


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
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


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


def fetch(
    lock: EngineLock, rows: Sequence[LockedFile], store: WheelStore, python: Path, log: Path, report: Report
) -> None:
    """Bring every file of `rows` into the store, verified; what is there already stays.

    Parameters:
        python: an interpreter with pip, of the Python version the files are for.
        log: file that pip's output is appended to.

    Raises:
        OnecatError: a file that nobody has or with another hash (exit code 2), no index could be reached (3), the disk
            is full (5). What has been fetched until then stays in the store.
    """
    store.directory.mkdir(parents=True, exist_ok=True)
    rows = [store.with_recorded_hash(row) for row in rows]
    missing = [row for row in rows if not store.holds(row) and not _take_from_folders(row, store, report)]
    total = sum(lock.estimated_size(row) for row in missing)
    if not missing:
        report(f"wheels: all {len(rows)} files are here and verified ({store.directory})")
        return
    report(
        f"wheels: {len(rows) - len(missing)} of {len(rows)} are here; downloading {len(missing)}, {megabytes(total)}"
    )
    meter = _Meter(total, report)
    for group in chunks(missing, lock):
        _download(lock, group, store, python, log, report, meter)
        meter.finish(sum(lock.estimated_size(row) for row in group))


class _Meter:
    """Reports how far a download is, at most every REPORT_SECONDS."""

    def __init__(self, total: int, report: Report) -> None:
        self.total, self.report = total, report
        self.done = 0
        self.started = self.reported = time.monotonic()

    def show(self, partly: int, always: bool = False) -> None:
        now, done = time.monotonic(), min(self.done + partly, self.total)
        if done and (always or now - self.reported >= REPORT_SECONDS):
            self.reported = now
            left = (now - self.started) * (self.total - done) / done
            self.report(
                f"wheels: {megabytes(done)} of {megabytes(self.total)} ({done * 100 // max(self.total, 1)} %), "
                f"about {left:.0f} s left"
            )

    def finish(self, size: int) -> None:
        self.done += size
        self.show(0, always=self.done >= self.total)


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
        known = json.loads(store.recorded.read_text(encoding="utf-8")) if store.recorded.is_file() else {}
        known[row.file] = {"sha256": sha256, "size": partial.stat().st_size}
        store.recorded.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(store.recorded, json.dumps(known, indent=2, sort_keys=True) + "\n")
        report(
            f"wheels: {row.file}: its hash could not be seen when onecat's lock was made; trusted at this first use "
            f"and recorded as sha256 {sha256} in {store.recorded}"
        )
    partial.replace(store.path(row))


def _download(
    lock: EngineLock,
    group: Sequence[LockedFile],
    store: WheelStore,
    python: Path,
    log: Path,
    report: Report,
    meter: _Meter,
) -> None:
    with out_of_space_told(store.directory), _scratch(store.directory) as scratch:
        (scratch / "temporary").mkdir()
        requirements = scratch / "requirements.txt"
        requirements.write_text("".join(map(requirement_line, group)), encoding="utf-8")
        command = download_command(python, requirements, scratch / "files", hashed=all(row.sha256 for row in group))
        environment = clean_environment(os.environ) | {"TMPDIR": str(scratch / "temporary")}
        code, output = run_logged(command, environment, log, lambda: meter.show(_size_below(scratch)))
        got: dict[str, Path] = {}
        for path in sorted((scratch / "files").glob("*.whl")):
            got[file_sha256(path)] = path
            if len(group) == 1 and group[0].sha256 is None and path.name == group[0].file:
                got[""] = path
        for row in group:
            found = got.get(row.sha256 or "")
            if found is None:
                raise download_error(lock, row, group, code, output, store.directory, log)
            _keep(found, row, row.sha256 or file_sha256(found), store, report)


@contextlib.contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A directory for unfinished files beside the finished ones; left-overs of killed runs are removed first."""
    for old in directory.glob(".partial-*"):
        if not _alive(old.name):
            shutil.rmtree(old, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f".partial-{os.getpid()}-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _alive(name: str) -> bool:
    process = name.split("-")[1]
    return process.isdigit() and Path("/proc", process).exists()


def _size_below(directory: Path) -> int:
    size = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += Path(parent, name).stat().st_size
    return size
