"""Checksums of files at disk speed: several files at once, and finished ones kept when it is interrupted.

SHA-256 is one chain over a file: a single file takes one processor and cannot be divided or resumed inside, so what is
kept after an interruption are whole files. hashlib computes without Python's lock, so threads suffice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from onecat.checkpoints.integrity.hash_state import HashState, Stamp, stamp_of
from onecat.checkpoints.integrity.manifests import Algorithm

CHUNK = 4 << 20
"""Bytes read at a time; larger ones fall out of the processor's cache before they are hashed."""

AHEAD = 4 * CHUNK
"""Bytes that the system is asked to read while others are hashed."""


class Interrupted(Exception):
    """The file was not read to its end because the caller asked to stop."""


@dataclass(frozen=True)
class Task:
    """A file to hash: its name below the directory and its checksum's kind."""

    name: str
    algorithm: Algorithm = "sha256"


@dataclass(frozen=True)
class Hashed:
    """A finished file. kept: its checksum is that of an earlier run which was interrupted. error: why there is none."""

    task: Task
    digest: str | None
    kept: bool = False
    error: str | None = None


def hash_files(
    directory: Path,
    tasks: Iterable[Task],
    state: HashState,
    *,
    jobs: int,
    tell: Callable[[int], None] = lambda read: None,
    stop: Event | None = None,
) -> Generator[Hashed, None, None]:
    """Hash files, each as it is done. What `state` knows of unchanged files is not read again.

    Closed or broken off, it waits for the pieces that are being read and keeps in `state` every file that was finished.

    Parameters:
        jobs: files read at once.
        tell: called with the bytes of each piece, or of a whole kept file, from any thread.
        stop: ends the reading when it is set; then the files that are not finished are left out.
    """
    ended = stop or Event()
    waiting: dict[Future[tuple[str, Stamp]], Task] = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        for task in tasks:
            stamp = stamp_of(directory / task.name)
            known = state.get(task.name, task.algorithm, stamp) if stamp is not None else None
            if known is not None and stamp is not None:
                tell(stamp.size)
                yield Hashed(task, known, kept=True)
            else:
                waiting[pool.submit(_digest, directory / task.name, task.algorithm, tell, ended)] = task
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                task = waiting[future]
                try:
                    digest, stamp = future.result()
                except Interrupted:
                    del waiting[future]
                    continue
                except OSError as error:
                    del waiting[future]
                    yield Hashed(task, None, error=error.strerror or str(error))
                    continue
                state.put(task.name, task.algorithm, stamp, digest)
                del waiting[future]
                yield Hashed(task, digest)
    finally:
        ended.set()
        pool.shutdown()
        for future, task in waiting.items():  # finished, and not yet told
            if future.exception() is None:
                digest, stamp = future.result()
                state.put(task.name, task.algorithm, stamp, digest)


def _digest(path: Path, algorithm: Algorithm, tell: Callable[[int], None], stop: Event) -> tuple[str, Stamp]:
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        before = Stamp.of(os.fstat(descriptor))
        if algorithm == "git-blob":
            digest = hashlib.sha1(b"blob %d\0" % before.size, usedforsecurity=False)
        else:
            digest = hashlib.sha256()
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        buffer = memoryview(bytearray(CHUNK))
        position = 0
        while True:
            if stop.is_set():
                raise Interrupted
            os.posix_fadvise(descriptor, position + CHUNK, AHEAD, os.POSIX_FADV_WILLNEED)
            read = file.readinto(buffer)
            if not read:
                break
            digest.update(buffer[:read])
            position += read
            tell(read)
        if Stamp.of(os.fstat(descriptor)) != before or position != before.size:
            raise OSError(None, "changed while it was read")
    return digest.hexdigest(), before
