"""A build context on its way out: as a tar archive for a builder, as files in a directory for a person."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path

from onecat.errors import ExitCode, OnecatError
from onecat.files import naming
from onecat.images.context import Context, ContextFile
from onecat.images.stored_file import StoredFile

MODIFIED = 315532800  # 1980-01-01, the earliest time that zip files know: the tar's time stamps say nothing
CHUNK_BYTES = 1 << 20
RENDERED_MARK = b"\n# Made by `onecat build --profile "


def tar_stream(context: Context) -> Iterator[bytes]:
    """The context as a tar archive, in pieces, never whole in memory. The same context gives the same bytes.

    Every stored file must have its path (`Context.with_paths`). Raises OnecatError (exit code 1) when one of them is
    no longer what it was when its hash was taken: the archive is cut short within it then, and no builder takes it.
    """
    entries: list[ContextFile | StoredFile] = [*context.files, *context.stored]
    for entry in sorted(entries, key=lambda entry: entry.name):
        if isinstance(entry, ContextFile):
            size, mode, pieces = len(entry.content), entry.mode, iter([entry.content])
        else:
            assert entry.path is not None, f"{entry.name} has not been fetched"
            size, mode = entry.path.stat().st_size, 0o644
            pieces = _checked_pieces(entry, entry.path, size)
        info = tarfile.TarInfo(entry.name)
        info.size, info.mode, info.mtime = size, mode, MODIFIED
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        yield from pieces
        yield b"\0" * (-size % tarfile.BLOCKSIZE)
    yield b"\0" * 2 * tarfile.BLOCKSIZE


def _checked_pieces(file: StoredFile, path: Path, size: int) -> Iterator[bytes]:
    """A file's bytes, the last of them only after all were found to be right: what is cut short nobody unpacks."""
    digest, read, held = hashlib.sha256(), 0, b""
    with path.open("rb") as stream:
        while piece := stream.read(CHUNK_BYTES):
            digest.update(piece)
            read += len(piece)
            if held and read <= size:
                yield held
            held = piece
    if read != size or file.sha256 not in (None, digest.hexdigest()):
        raise OnecatError(
            f"{file.name} has changed since the build began",
            expected=f"{size} bytes" + (f", sha256 {file.sha256}" if file.sha256 else ""),
            where=str(path),
            details=[f"{read} bytes, sha256 {digest.hexdigest()} were read"],
            next_steps=["run the same command again, once nothing writes that file"],
            code=ExitCode.NO,
        )
    yield held


def write_context(context: Context, directory: Path) -> tuple[str, ...]:
    """Write the context's files (not the stored ones) below `directory`. Removes nothing.

    Returns the names of the files that were written because they were missing or different. Raises OnecatError (exit
    code 2), and writes nothing, where that would replace files in a directory that onecat has not written before.
    """
    different = [file for file in context.files if not _has(directory / file.name, file.content)]
    foreign = [file.name for file in different if (directory / file.name).exists()]
    if foreign and not _rendered_before(directory):
        raise OnecatError(
            f"there are other files already: {', '.join(foreign)}",
            expected="a directory without them, or one that onecat has written before",
            where=str(directory.absolute()),
            next_steps=["name another directory: --output DIRECTORY", "or move these files away"],
        )
    written = []
    for file in context.files:
        path = directory / file.name
        if file not in different and path.stat().st_mode & 0o777 == file.mode:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with naming(path):
            path.write_bytes(file.content)
        path.chmod(file.mode)
        written.append(file.name)
    return tuple(written)


def _has(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _rendered_before(directory: Path) -> bool:
    """Whether the Dockerfile there is one of ours: the templates say so in their heads."""
    dockerfile = directory / "Dockerfile"
    return dockerfile.is_file() and RENDERED_MARK in dockerfile.read_bytes()
