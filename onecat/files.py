"""Files that are written whole or not at all, and JSON that people can read. Standard library only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

_SCRATCH = ".onecat-partial-"


def stream_sha256(stream: BinaryIO) -> str:
    """SHA-256 in hex of what is left of a stream, read in pieces."""
    digest = hashlib.sha256()
    while piece := stream.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Gives an OSError of the block the path that it is about where the system names none, as for a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, content: str | bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
    """Write `content`, text as UTF-8, to `path` so that a reader sees the old content or the new one, never a part.

    owner: (uid, gid) the file shall belong to from the moment it is there; None leaves it ours.

    Raises OSError (a full disk, a missing permission); nothing is left behind then.
    """
    raw = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        with naming(path), open(descriptor, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        if owner is not None:
            os.chown(temporary, *owner)
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:  # a Ctrl-C, too: it may hold a secret
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def write_json(path: Path, document: Any, mode: int = 0o600) -> None:
    """Write one JSON document, indented for people, atomically."""
    write_atomically(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n", mode)


def read_json(path: Path) -> Any | None:
    """The document in `path`, or None when there is no such file. Raises ValueError when it is not JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return json.loads(text)


@contextlib.contextmanager
def scratch_directory(directory: Path) -> Iterator[Path]:
    """A directory for unfinished files beside the finished ones; left-overs of killed runs are removed first."""
    for old in directory.glob(f"{_SCRATCH}*"):
        process = old.name.removeprefix(_SCRATCH).partition("-")[0]
        # The directory may be a person's own: nothing is removed that has not exactly the name of ours.
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(old, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
