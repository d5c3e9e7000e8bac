"""Logs that a command reads: files as they are or compressed, and standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from onecat.errors import OnecatError

CHUNK_BYTES = 1 << 20
STANDARD_INPUT = "-"
_PROGRAMS = {"GzipFile": "zcat", "LZMAFile": "xzcat", "BZ2File": "bzcat"}
"""What prints a compressed file, by the class that reads it."""
# The first bytes of a compressed file: RFC 1952; https://tukaani.org/xz/xz-file-format.txt; bzip2; RFC 8878.
_GZIP, _XZ, _BZIP2, _ZSTANDARD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh", b"\x28\xb5\x2f\xfd"


def open_log(name: str) -> IO[bytes]:
    """A log for reading, decompressed where its first bytes say that it is compressed; `-` is standard input.

    Raises OnecatError when it cannot be read.
    """
    try:
        stream = cast(Any, sys.stdin.buffer if name == STANDARD_INPUT else Path(name).open("rb"))  # noqa: SIM115 - for the caller
        if not hasattr(stream, "peek"):
            return cast(IO[bytes], stream)
        return _decompressed(stream, stream.peek(8)[:8], name)
    except OSError as error:
        is_directory = name != STANDARD_INPUT and Path(name).is_dir()
        raise OnecatError(
            f"the log cannot be read: {error.strerror or error}",
            where=name,
            expected="a log file that this user may read, or - for standard input",
            next_steps=[f"name a file in it: ls -t {name}" if is_directory else "onecat logs NAME | onecat diagnose -"],
        ) from error


def chunks_of(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """The bytes of a log as they are read. Raises OnecatError when it cannot be read or decompressed to its end."""
    import lzma
    import zlib

    try:
        # read1 returns what there is, so that a log that is piped in is not kept waiting.
        read = getattr(stream, "read1", stream.read)
        while chunk := read(CHUNK_BYTES):
            yield chunk
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        program = _PROGRAMS.get(type(stream).__name__)
        raise OnecatError(
            f"the log cannot be read to its end: {error}",
            where=name,
            expected="a whole file; a compressed one that is still being written is not" if program else None,
            next_steps=[f"read what there is of it: {program} {name} | onecat diagnose -"] if program else [],
        ) from error


def _decompressed(stream: IO[bytes], first: bytes, name: str) -> IO[bytes]:
    if first.startswith(_GZIP):
        import gzip

        return cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if first.startswith(_XZ):
        import lzma

        return cast(IO[bytes], lzma.LZMAFile(stream))
    if first.startswith(_BZIP2):
        import bz2

        return cast(IO[bytes], bz2.BZ2File(stream))
    if first.startswith(_ZSTANDARD):
        raise OnecatError(
            "the log is compressed by Zstandard, which onecat does not read",
            where=name,
            expected="text, or a file compressed by gzip, bzip2 or xz",
            next_steps=[f"zstd -dc {name} | onecat diagnose -"],
        )
    return stream
