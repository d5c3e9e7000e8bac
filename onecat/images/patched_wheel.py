"""An engine's wheel with a patch series put into it: for engines that are installed as they were built by others.

Only what Python reads is patched. The result is a wheel like any other, whose RECORD is true, so that pip installs,
checks and removes it, and no bytecode of the files before is left anywhere. Its build tag names the series.
"""

from __future__ import annotations

import base64
import configparser
import contextlib
import csv
import hashlib
import io
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import OnecatError
from onecat.images.disk import out_of_space_told
from onecat.patching import Series, patched_files

if TYPE_CHECKING:
    from onecat.images.lock import EngineLock
    from onecat.images.wheels import WheelStore

Report = Callable[[str], None]

KEPT_SECONDS = 24 * 3600  # a build that still reads an older one has ended by then

PACKAGES = ("vllm/", "vllm_volta/")
# What the build of the patched source puts into its metadata.
ENTRY_POINTS = {"vllm_volta/plugin.py": ("vllm.general_plugins", "volta", "vllm_volta.plugin:register")}


@dataclass(frozen=True)
class PatchedWheel:
    """changed, added: paths in the wheel."""

    path: Path
    changed: tuple[str, ...]
    added: tuple[str, ...]


def is_patched(path: str) -> bool:
    """Whether a file of the source is laid into a wheel: the engine's Python modules and our own."""
    return path.startswith(PACKAGES) and path.endswith(".py")


def patched_name(file: str, series: Series) -> str:
    """File name of a wheel with a series: NAME-VERSION-1onecat<digest>-TAGS.whl."""
    name, version, tags = file.split("-", 2)
    return f"{name}-{version}-1onecat{series.digest[:16]}-{tags}"


def ensure_patched_wheel(lock: EngineLock, python: str, store: WheelStore, report: Report) -> PatchedWheel:
    """The engine's wheel with the lock's series, made from the verified wheel in the store.

    Raises OnecatError: the series does not fit the wheel (exit code 1), or the disk is full (5).
    """
    assert lock.series is not None
    row = lock.engine_file(python)
    folder = store.directory / "patched"
    with out_of_space_told(store.directory):
        folder.mkdir(parents=True, exist_ok=True)
        patched = write_patched_wheel(store.path(row), lock.series, folder / patched_name(row.file, lock.series))
        _forget_older(patched.path)
    changed, added = len(patched.changed), len(patched.added)
    report(f"patches: {lock.series.name} put into {lock.engine}; modules changed: {changed}, added: {added}")
    return patched


def write_patched_wheel(wheel: Path, series: Series, target: Path) -> PatchedWheel:
    """Write `wheel` with the Python part of a series to `target`, whole or not at all.

    Raises OnecatError (exit code 1) when the wheel's modules are not those that the series is made for.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        files = patched_files(series, lambda path: archive.read(path) if path in names else None, is_patched)
        if not files:
            raise OnecatError(f"no patch of {series.name} concerns {wheel.name}", where=str(series.directory))
        changed = tuple(sorted(path for path in files if path in names))
        added = tuple(sorted(path for path in files if path not in names))
        (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
        entries = f"{record.rpartition('/')[0]}/entry_points.txt"
        points = [point for path, point in ENTRY_POINTS.items() if path in files]
        if points:
            text = archive.read(entries).decode() if entries in names else ""
            files = {**files, entries: _with_entry_points(text, points)}
        files = {**files, record: _record(archive.read(record).decode(), record, files)}
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        shutil.copyfile(wheel, partial)
        _replace(partial, files)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return PatchedWheel(target, changed, added)


def _forget_older(wheel: Path) -> None:
    """Remove what was made of another state of a series or by a killed build, once no build can be at it."""
    name, version, _, tags = wheel.name.split("-", 3)
    for pattern in (f"{name}-{version}-*-{tags}", f".{name}-{version}-*-{tags}.*.partial"):
        for path in wheel.parent.glob(pattern):
            with contextlib.suppress(FileNotFoundError):  # another build may tidy up, too
                if path != wheel and time.time() - path.stat().st_mtime > KEPT_SECONDS:
                    path.unlink()


def _with_entry_points(text: str, points: list[tuple[str, str, str]]) -> bytes:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    for group, name, value in points:
        if not parser.has_section(group):
            parser.add_section(group)
        parser.set(group, name, value)
    written = io.StringIO()
    parser.write(written)
    return written.getvalue().encode()


def _record(text: str, name: str, files: Mapping[str, bytes]) -> bytes:
    """RECORD (binary distribution format) with the rows of new contents; its own row stays without a hash."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row and row[0] not in files and row[0] != name]
    for path, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append([path, f"sha256={digest}", str(len(content))])
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([*rows, [name, "", ""]])
    return written.getvalue().encode()


def _replace(wheel: Path, files: Mapping[str, bytes]) -> None:
    """Give files of a zip archive other contents. All else keeps its bytes: nothing is compressed anew."""
    with zipfile.ZipFile(wheel, "a") as archive:
        # The directory at the archive's end then names the new contents only.
        for entry in [entry for entry in archive.filelist if entry.filename in files]:
            archive.filelist.remove(entry)
            del archive.NameToInfo[entry.filename]
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
