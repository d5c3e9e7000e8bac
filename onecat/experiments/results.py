"""Result files: what an experiment measured, written line by line while it runs, and read back.

A line is on the disk before the next block begins, so a crash loses at most the block that was being measured. A line
that was cut off in its midst is the last one; it is left out by readers and removed when the experiment is resumed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, Literal

from onecat.errors import ExitCode, OnecatError
from onecat.experiments import result_lines
from onecat.experiments.records import RESULT_SCHEMA, Block, Environment, Experiment, Kind, Objectives

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_TAIL = 1 << 16
_MOMENT = 0.2


class ResultFile:
    """A result file that is being written; one process at a time has it. A context manager, which closes it.

    path: where it is. experiment: what was in it when it was opened, for going on from there.
    """

    def __init__(self, path: Path, descriptor: int, experiment: Experiment) -> None:
        self.path = path
        self.experiment = experiment
        self._descriptor = descriptor

    @classmethod
    def create(
        cls,
        path: Path,
        kind: Kind,
        environment: Environment,
        settings: Mapping[str, Any],
        objectives: Objectives = Objectives(),  # noqa: B008 - frozen
    ) -> ResultFile:
        """Begin a file that is not there yet; its directory is made.

        Raises OnecatError (exit code 2) when there is a file; OSError.
        """
        experiment = Experiment(
            id=secrets.token_hex(6),
            kind=kind,
            started_at=now(),
            environment=environment,
            blocks=(),
            objectives=objectives,
            settings=dict(settings),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileExistsError as error:
            raise OnecatError(
                "there is a file already, and results are never written over",
                expected="a new file",
                where=str(path),
                next_steps=["name another file", f"see what it holds: onecat bench report {path}"],
            ) from error
        _lock(descriptor, path)
        file = cls(path, descriptor, experiment)
        file._write(result_lines.header_document(experiment))
        file._flush()
        return file

    @classmethod
    def open_to_resume(cls, path: Path) -> ResultFile:
        """Go on with an experiment that was cut off; a torn last line is removed.

        Raises OnecatError when it is finished, when another process has it, or when it is no result file; OSError.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise _missing(path) from error
        try:
            _lock(descriptor, path)
            read = _read(path)
            if read.experiment.finished_at is not None:
                raise finished_already(read.experiment, path)
            os.ftruncate(descriptor, read.whole)
            file = cls(path, descriptor, read.experiment)
            if read.lacks_end:
                file._write_bytes(b"\n")
            file._write({"resumed_at": now()})
            file._flush()
        except BaseException:
            os.close(descriptor)
            raise
        return file

    def add_block(self, block: Block) -> None:
        """Write a block that was measured; it is on the disk when this returns.

        Raises ValueError when a time of it is no finite number (it was not measured, then); OSError.
        """
        self._write({"block": result_lines.block_document(block)})
        self._flush()

    def add_sample(self, sample: Mapping[str, Any]) -> None:
        """Write a reading on the way. It is on the disk with the next block at the latest. Raises OSError."""
        self._write({"sample": result_lines.with_nulls(sample)})

    def finish(self, verdict: Mapping[str, Any] | None) -> None:
        """Write the end: nothing is added any more. Raises OSError."""
        self._write({"finished_at": now(), "verdict": result_lines.with_nulls(verdict)})
        self._flush()

    def close(self) -> None:
        """Let go of the file. Without `finish` before, the experiment can be resumed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, document: Mapping[str, Any]) -> None:
        self._write_bytes(result_lines.text_of(document).encode())

    def _write_bytes(self, raw: bytes) -> None:
        """All of it or, where the disk is full, nothing: a part of a line would spoil the lines after it."""
        before = os.fstat(self._descriptor).st_size
        left = memoryview(raw)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            os.ftruncate(self._descriptor, before)
            error.filename = str(self.path)
            raise

    def _flush(self) -> None:
        os.fsync(self._descriptor)


def now() -> str:
    """The time as result files have it: UTC, RFC 3339."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_experiment(path: Path) -> Experiment:
    """A result file, also of an experiment that runs still or was cut off.

    Raises OnecatError (exit code 2) when there is none, when it is no result file or one of a later schema, or when a
    line before the last is damaged, naming the line; OSError.
    """
    return _read(path).experiment


@dataclass(frozen=True)
class Outline:
    """What is told of a result file without reading all of it.

    experiment: without blocks and samples. is_running: a process is writing it.
    """

    path: Path
    experiment: Experiment
    is_running: bool
    bytes: int

    @property
    def state(self) -> Literal["finished", "runs", "cut off"]:
        """Whether it is finished; if not, whether it goes on or was cut off and can be resumed."""
        if self.experiment.finished_at is not None:
            return "finished"
        return "runs" if self.is_running else "cut off"


def read_outline(path: Path) -> Outline:
    """The first line of a result file, and how it ends. Raises as `read_experiment`."""
    with _open(path) as stream:
        header = _header(stream.readline(), path)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL))
        last = stream.read().rstrip(b"\n").rpartition(b"\n")[2]
        running = _is_locked(stream.fileno())
    return Outline(path, _with_end(header, last), running, size)


def _with_end(header: Experiment, last: bytes) -> Experiment:
    try:
        document = json.loads(last)
    except ValueError:  # a block that is longer than what was read, or a torn line
        return header
    if not isinstance(document, dict) or "finished_at" not in document:
        return header
    return replace(header, finished_at=document["finished_at"], verdict=document.get("verdict"))


@dataclass(frozen=True)
class _Read:
    """whole: bytes up to the end of the last whole line. lacks_end: that line has no line feed."""

    experiment: Experiment
    whole: int
    lacks_end: bool


def _read(path: Path) -> _Read:
    with _open(path) as stream, _without_collecting():
        first = stream.readline()
        experiment = _header(first, path)
        whole, lacks_end = len(first), not first.endswith(b"\n")
        blocks: list[Block] = []
        samples: list[dict[str, Any]] = []
        for number, line, is_last in _numbered(stream):
            try:
                document = json.loads(line)
            except ValueError as error:
                if is_last:
                    break
                raise _damaged(path, number, error) from error
            try:
                experiment = _take(document, experiment, blocks, samples)
            except (ValueError, KeyError, TypeError) as error:
                raise _damaged(path, number, error) from error
            whole += len(line)
            lacks_end = not line.endswith(b"\n")
    return _Read(replace(experiment, blocks=tuple(blocks), samples=tuple(samples)), whole, lacks_end)


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """Python would look for cycles again and again while millions of requests are made, which have none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise _missing(path) from error


def _numbered(stream: BinaryIO) -> Iterator[tuple[int, bytes, bool]]:
    """Lines after the first with their numbers, and whether nothing follows them."""
    number, line = 2, stream.readline()
    while line:
        following = stream.readline()
        yield number, line, not following
        number, line = number + 1, following


def _take(document: Any, experiment: Experiment, blocks: list[Block], samples: list[dict[str, Any]]) -> Experiment:
    if not isinstance(document, dict):
        raise TypeError(f"{document!r:.40} where an object belongs")
    if "block" in document:
        blocks.append(result_lines.block_from(document["block"]))
    elif "sample" in document:
        samples.append(document["sample"])
    elif "resumed_at" in document:
        return replace(experiment, resumed_at=(*experiment.resumed_at, document["resumed_at"]))
    elif "finished_at" in document:
        return replace(experiment, finished_at=document["finished_at"], verdict=document.get("verdict"))
    return experiment


def _header(line: bytes, path: Path) -> Experiment:
    try:
        document = json.loads(line)
        schema = document.get("schema") if isinstance(document, dict) else None
    except ValueError:
        schema = None
    if not isinstance(schema, str) or not schema.startswith("onecat.bench/"):
        raise OnecatError(
            f"this is no result file of onecat bench{f', but of schema {schema}' if schema else ''}",
            expected=f'a first line with "schema": "{RESULT_SCHEMA}"',
            where=f"{path}:1",
            next_steps=["see which result files there are: onecat bench report"],
        )
    if schema != RESULT_SCHEMA:
        raise OnecatError(
            f"this result file has schema {schema}, which this onecat does not read",
            expected=RESULT_SCHEMA,
            where=f"{path}:1",
            next_steps=["read it with the onecat that wrote it, or a later one: onecat --version"],
        )
    try:
        return result_lines.header_from(document)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, 1, error) from error


def _lock(descriptor: int, path: Path) -> None:
    """Raises OnecatError (exit code 4) when another process writes the file."""
    try:
        _wait_for_lock(descriptor)
    except BlockingIOError as error:
        raise OnecatError(
            "another onecat is writing this result file",
            expected="one run at a time",
            where=str(path),
            next_steps=["wait for it, or stop it with Ctrl-C: what it measured is kept"],
            code=ExitCode.ROLLED_BACK,
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _wait_for_lock(descriptor: int) -> None:
    """Whoever asks whether a file is being written holds its lock for a moment. Raises BlockingIOError, OSError."""
    deadline = time.monotonic() + _MOMENT
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_MOMENT / 20)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return False


def finished_already(experiment: Experiment, path: Path) -> OnecatError:
    """The error of one that shall go on and is at its end."""
    return OnecatError(
        f"this experiment is finished, since {experiment.finished_at}",
        expected="one that was cut off",
        where=str(path),
        next_steps=[f"see what it found: onecat bench report {path}"],
    )


def _missing(path: Path) -> OnecatError:
    return OnecatError(
        "there is no such result file",
        expected="a file that onecat bench wrote",
        where=str(path),
        next_steps=["see which there are: onecat bench report"],
    )


def _damaged(path: Path, number: int, error: Exception) -> OnecatError:
    what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    return OnecatError(
        f"line {number} of this result file is damaged: {what}",
        expected="a line as onecat wrote it; only the last one may be cut off",
        where=f"{path}:{number}",
        next_steps=["restore the file, or remove that line to read the others"],
    )
