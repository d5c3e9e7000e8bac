"""Disk and process helpers of this room: full disks told once, commands run with a log."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from onecat.errors import ExitCode, OnecatError


def megabytes(count: float) -> str:
    """A number of bytes for people, in decimal units as package indexes use them."""
    return (
        f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB" if count < 1e7 else f"{count / 1e6:.0f} MB"
    )


def out_of_space(directory: Path) -> OnecatError:
    """The disk filled up while we were writing below `directory`."""
    return OnecatError(
        "the disk is full",
        where=str(directory),
        next_steps=[
            "free some space, then run the same command again: it goes on from here",
            "or set ONECAT_HOME (all of onecat) or ONECAT_CACHE (downloads) to a directory on a larger disk",
        ],
        code=ExitCode.NEEDS_PERSON,
    )


FULL_BYTES = 2**20
"""A disk with less room than this counts as full: a program's own words about it may not have fitted into its log."""


def is_out_of_space(output: str, directory: Path) -> bool:
    """Whether a program that failed while it wrote below `directory` failed because the disk is full."""
    full = directory.exists() and shutil.disk_usage(directory).free < FULL_BYTES
    return full or "No space left on device" in output


@contextlib.contextmanager
def out_of_space_told(directory: Path) -> Iterator[None]:
    """Turns an ENOSPC or EDQUOT inside the block into the OnecatError about a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise out_of_space(directory) from error
        raise


TICK_SECONDS = 0.5
_C_LIBRARY = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
    """In a child: be killed when onecat is, so that no left-over writes into what the next run repairs."""
    _C_LIBRARY.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run_logged(
    command: Sequence[str], environment: Mapping[str, str], log: Path, tick: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Run a command with its output appended to `log`, calling `tick` twice a second; ends it on interruption.

    Returns its exit code and its output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+", encoding="utf-8", errors="replace") as stream:
        stream.write(f"$ {' '.join(command)}\n")
        stream.flush()
        start = stream.tell()
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, nothing that a fork could have left locked
        )
        try:
            while True:
                try:
                    process.wait(timeout=TICK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    tick()
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        stream.seek(start)
        return process.returncode, stream.read()
