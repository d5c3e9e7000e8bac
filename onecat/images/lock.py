"""Engine locks: the exact wheels an engine's runtime consists of, per Python version (data in onecat/engines/locks)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.errors import OnecatError
from onecat.resources import parse_table

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.patching import Series

LOCKS = Path(__file__).resolve().parent.parent / "engines" / "locks"


@dataclass(frozen=True)
class LockedFile:
    """One wheel of a lock.

    sha256, size (bytes): None when the file could not be seen when the lock was made; recorded at first use then.
    pythons: CPython versions that take this file, as "3.11".
    """

    project: str
    version: str
    file: str
    sha256: str | None
    size: int | None
    pythons: tuple[str, ...]


@dataclass(frozen=True)
class LeftOut:
    """A distribution the engine's metadata asks for and the runtime does without."""

    project: str
    why: str


@dataclass(frozen=True)
class SystemLibrary:
    """A shared library that wheels expect of the system.

    file: its soname. debian, redhat: the packages that bring it.
    """

    file: str
    debian: str
    redhat: str
    why: str


@dataclass(frozen=True)
class EngineLock:
    """All wheels of one engine version.

    machine, glibc, cpu_flags, libraries: least a host must have (`uname -m`, glibc version, /proc/cpuinfo flags).
    packaged_by: a sentence on who made the build, for people; empty for the engine's own project.
    pinned: projects that come from an index of their own.
    series: patches that are put into the engine's own wheel before it is installed; no part of the lock's file.
    """

    engine: str
    version: str
    machine: str
    glibc: str
    cpu_flags: tuple[str, ...]
    libraries: tuple[SystemLibrary, ...]
    packaged_by: str
    pythons: tuple[str, ...]
    pinned: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    files: tuple[LockedFile, ...]
    series: Series | None = None

    def for_python(self, python: str) -> tuple[LockedFile, ...]:
        """The wheels for one Python version: pinned projects first, then the largest first."""
        mine = [row for row in self.files if python in row.pythons]
        return tuple(sorted(mine, key=lambda row: (row.project not in self.pinned, -(row.size or 0), row.file)))

    def estimated_size(self, row: LockedFile) -> int:
        """Size of a wheel in bytes; the largest known size of the project's other wheels where its own is unknown."""
        return row.size or max((other.size or 0 for other in self.files if other.project == row.project), default=0)

    def engine_file(self, python: str) -> LockedFile:
        """The engine's own wheel."""
        return next(row for row in self.for_python(python) if row.project == self.engine)

    def digest(self, python: str) -> str:
        """SHA-256 (hex) over file names, hashes and patches: runtimes with the same digest hold the same files."""
        rows = sorted(f"{row.file} {row.sha256 or '-'}\n" for row in self.for_python(python))
        if self.series is not None:
            rows.append(f"{self.series.name} {self.series.digest}\n")
        return hashlib.sha256("".join(rows).encode()).hexdigest()


def lock_path(engine: str, version: str) -> Path:
    """Where the lock of an engine version lies (it may not exist)."""
    return LOCKS / f"{engine}-{version}.yaml"


def read_lock(engine: str, version: str) -> EngineLock:
    """The lock of an engine version. Raises OnecatError when onecat has none."""
    path = lock_path(engine, version)
    if not path.is_file():
        known = sorted(lock.stem for lock in LOCKS.glob("*.yaml"))
        raise OnecatError(
            f"onecat has no lock for {engine} {version}",
            expected=f"one of: {', '.join(known)}",
            next_steps=["choose such an engine version in the profile", "or build a container image"],
        )
    return parse_lock(path.read_text(encoding="utf-8"))


def profile_lock(profile: Profile) -> EngineLock:
    """The lock of a profile's engine, with the patches that the profile wants. Raises OnecatError as `read_lock`."""
    from onecat.patching import load_series

    lock = read_lock(profile.engine.name, profile.engine.version)
    if profile.image.patches is None:
        return lock
    return replace(lock, series=load_series(profile.image.patches).for_profile(profile))


def parse_lock(text: str) -> EngineLock:
    """A lock from its YAML text. Raises KeyError or ValueError when it is malformed (it ships with onecat)."""
    data: dict[str, Any] = parse_table(text)
    if data["schema"] != "onecat.engine-lock/1":
        raise ValueError(f"unknown lock schema {data['schema']}")
    return EngineLock(
        engine=data["engine"],
        version=data["version"],
        machine=data["platform"]["machine"],
        glibc=data["platform"]["glibc"],
        cpu_flags=tuple(data["platform"]["cpu_flags"]),
        libraries=tuple(SystemLibrary(**row) for row in data["platform"]["libraries"]),
        packaged_by=data["packaged_by"],
        pythons=tuple(data["pythons"]),
        pinned=tuple(row["project"] for row in data["request"]["pinned"]),
        left_out=tuple(LeftOut(row["project"], row["why"]) for row in data["request"]["left_out"]),
        files=tuple(
            LockedFile(
                row["project"], str(row["version"]), row["file"], row["sha256"], row["size"], tuple(row["pythons"])
            )
            for row in data["files"]
        ),
    )
