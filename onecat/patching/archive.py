"""The pinned source archive: its hash is checked before anything in it is believed, no name in it is trusted."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from onecat.errors import ExitCode, OnecatError
from onecat.files import scratch_directory, stream_sha256
from onecat.patching.series import Upstream
from onecat.patching.source import SourceFile, check_path


def unpack(archive: Path, upstream: Upstream, into: Path) -> Path:
    """Unpack a source archive into a folder, below which it is one folder of its own; returns that.

    The tree appears whole or not at all. Files have mode 644 or 755.

    Raises OnecatError: the hash is another (exit code 1), a member would leave the folder or is no plain file (1),
    the tree is there already (2).
    """
    with _unpacked(archive, upstream, into) as tree:
        target = into / tree.name
        if target.exists() or target.is_symlink():
            raise OnecatError(
                f"{target} is there already", expected="a folder without it", next_steps=["name another folder"]
            )
        tree.rename(target)
    return target


def unpack_as(archive: Path, upstream: Upstream, root: Path) -> None:
    """Unpack a source archive so that `root`, which is empty or not there, is the root of the source.

    Raises OnecatError as `unpack` does, OSError when `root` has something in it.
    """
    with _unpacked(archive, upstream, root.absolute().parent) as tree:
        tree.rename(root)


@contextmanager
def _unpacked(archive: Path, upstream: Upstream, beside: Path) -> Iterator[Path]:
    """The tree of an archive in a folder that goes away, on the file system of another one."""
    beside.mkdir(parents=True, exist_ok=True)
    with scratch_directory(beside) as partial:
        with _damage_told(archive):
            top = _unpack(archive, upstream, partial)
        yield partial / top


@dataclass(frozen=True)
class MemorySource:
    """Some files of a tree, in memory."""

    files: dict[str, SourceFile]

    def read(self, path: str) -> SourceFile | None:
        return self.files.get(path)


def read_members(archive: Path, upstream: Upstream, wanted: Collection[str]) -> MemorySource:
    """The wanted files of an archive, read in one pass without unpacking it. Raises as `unpack` does."""
    return MemorySource(dict(contents(archive, upstream, lambda path: path in wanted)))


def contents(
    archive: Path, upstream: Upstream, wanted: Callable[[str], bool] = lambda path: True
) -> Iterator[tuple[str, SourceFile]]:
    """The wanted files of an archive, one after the other, each with its path. Raises as `unpack` does."""
    with _damage_told(archive):
        for path, member, tar in _members(archive, upstream):
            if member.isfile() and wanted(path):
                stream = tar.extractfile(member)
                assert stream is not None  # only None for what is no file
                yield path, SourceFile(stream.read(), _mode(member))


def _members(archive: Path, upstream: Upstream) -> Iterator[tuple[str, tarfile.TarInfo, tarfile.TarFile]]:
    """The members of an archive, each with its path in the tree."""
    with _verified(archive, upstream) as stream, tarfile.open(fileobj=stream, mode="r:*") as tar:
        top = None
        for member in tar:
            found, path = _checked(member, archive)
            if top not in (None, found):
                raise _unsafe(archive, f"{member.name} lies beside {top}", "one folder that holds all")
            top = found
            if path:
                yield path, member, tar


@contextmanager
def _damage_told(archive: Path) -> Iterator[None]:
    """Turns what reading a damaged archive ends with into an OnecatError."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise OnecatError(
            "the source archive cannot be read", where=str(archive), details=[str(error)], code=ExitCode.NO
        ) from error


def _unpack(archive: Path, upstream: Upstream, into: Path) -> str:
    top = ""
    for path, member, tar in _members(archive, upstream):
        top = top or member.name.split("/")[0]
        target = into / top / path
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with target.open("xb") as stream:
                source = tar.extractfile(member)
                assert source is not None  # only None for what is no file
                shutil.copyfileobj(source, stream, 1 << 20)
        except FileExistsError as error:
            raise _unsafe(archive, f"{member.name} is in it twice", "each file once") from error
        target.chmod(_mode(member))
    if not top:
        raise _unsafe(archive, "it is empty", f"the source of {upstream.distribution}")
    return top


def _checked(member: tarfile.TarInfo, archive: Path) -> tuple[str, str]:
    """A member's first folder, and its path below that; refuses what leaves the folder and what is no plain file."""
    name = member.name.rstrip("/")
    try:
        check_path(name, str(archive))
        if "/" in name:
            check_path(name.partition("/")[2], str(archive))
    except OnecatError as error:
        raise _unsafe(archive, error.found, "members below one folder") from error
    if not (member.isfile() or member.isdir()):
        kind = "a link" if member.islnk() or member.issym() else "a device or pipe"
        raise _unsafe(archive, f"{name} is {kind}", "plain files and folders")
    top, _, path = name.partition("/")
    if not path and not member.isdir():
        raise _unsafe(archive, f"{name} lies beside the folder", "one folder that holds all")
    return top, path


def _unsafe(archive: Path, found: str, expected: str) -> OnecatError:
    return OnecatError(
        f"the source archive is not one that onecat unpacks: {found}",
        expected=expected,
        where=str(archive),
        code=ExitCode.NO,
    )


@contextmanager
def _verified(archive: Path, upstream: Upstream) -> Iterator[BinaryIO]:
    """The archive open at its beginning, after all of it was read and has the pinned hash."""
    with archive.open("rb") as stream:
        sha256 = stream_sha256(stream)
        if sha256 != upstream.sha256:
            raise wrong_hash(archive, upstream, sha256)
        stream.seek(0)
        yield stream


def wrong_hash(archive: Path, upstream: Upstream, found: str) -> OnecatError:
    """A file of the right name that is not the pinned one."""
    return OnecatError(
        f"{archive.name} is not the file that the patches are made for",
        expected=f"sha256 {upstream.sha256}",
        where=str(archive),
        details=[
            f"sha256 {found} was found",
            f"either the file is damaged, or {upstream.distribution} {upstream.version} was released anew or replaced",
        ],
        next_steps=[
            "fetch it again, from another index or mirror",
            "if every index has this other file: do not trust it before upstream says why",
        ],
        code=ExitCode.NO,
    )


def _mode(member: tarfile.TarInfo) -> int:
    return 0o755 if member.mode & 0o100 else 0o644
