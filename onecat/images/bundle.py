"""The bundle file: one plain tar archive whose first member says what all others must be.

Its large members are compressed already (zstd -1 takes 1 % off a bundle, measured), so the archive is not; that lets a
writer fill in the sizes of what it streams (images) afterwards, and nothing is ever whole in memory or written twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from onecat.errors import ExitCode, OnecatError
from onecat.files import scratch_directory
from onecat.images.disk import megabytes, out_of_space_told

SCHEMA = "onecat.bundle/1"
MANIFEST = "manifest.json"
MODIFIED = 315532800  # 1980-01-01: the archive's time stamps say nothing
CHUNK_BYTES = 1 << 20
PROGRESS_BYTES = 100_000_000
MANIFEST_LIMIT = 16 << 20
_PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOCK = tarfile.BLOCKSIZE
_UNKNOWN_SIZE, _UNKNOWN_HASH = 10**15, "0" * 64  # as long as any real value, so that the manifest's place is enough

Report = Callable[[str], None]


@dataclass(frozen=True)
class Member:
    """One file of a bundle.

    name: its path in the archive. size: in bytes. sha256: in hex.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """Where the bytes of a member come from.

    content: bytes in memory, a file, or a function that opens a stream of unknown length. size, sha256: None for such
    a stream; they are measured while it is written. about: bytes that a stream will have, roughly, for the progress.
    """

    name: str
    content: bytes | Path | Callable[[], contextlib.AbstractContextManager[Iterable[bytes]]]
    size: int | None = None
    sha256: str | None = None
    about: int = 0

    @staticmethod
    def of_bytes(name: str, content: bytes) -> Source:
        return Source(name, content, len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself: `facts` (schema, versions, profile, images) and its members in their order."""

    facts: Mapping[str, Any]
    members: tuple[Member, ...]

    def text(self) -> bytes:
        """The manifest's bytes: JSON that holds its own digest, and so names the whole bundle by content."""
        return (json.dumps({"digest": self.digest, **self._document()}, indent=1) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over everything that the manifest says: equal bundles have equal digests."""
        return hashlib.sha256(json.dumps(self._document(), sort_keys=True).encode()).hexdigest()

    def _document(self) -> dict[str, Any]:
        rows = [{"name": each.name, "size": each.size, "sha256": each.sha256} for each in self.members]
        return {"schema": SCHEMA, **self.facts, "members": rows}

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(each.size for each in self.members)

    def below(self, folder: str) -> tuple[Member, ...]:
        """The members in a folder of the archive."""
        return tuple(each for each in self.members if each.name.startswith(f"{folder}/"))


def write_bundle(path: Path, facts: Mapping[str, Any], sources: Iterable[Source], report: Report) -> Manifest:
    """Write a bundle: whole or not at all.

    Parameters:
        facts: what the manifest says besides its members. sources: the members, in the order they get.
        report: called with one line every 100 MB.

    Raises:
        OnecatError: a file is not what its hash says (exit code 1), the disk is full (5). Nothing is left then.
    """
    sources = tuple(sources)
    total = sum(each.size or each.about for each in sources)
    with out_of_space_told(path.parent), scratch_directory(path.parent) as scratch:
        partial = scratch / path.name
        with partial.open("xb") as archive:
            expected = [Member(each.name, each.size or _UNKNOWN_SIZE, each.sha256 or _UNKNOWN_HASH) for each in sources]
            place = len(Manifest(facts, tuple(expected)).text())
            _start_member(archive, MANIFEST, place)
            archive.write(b" " * place)
            _end_member(archive)
            meter = _Meter(total, report, "bundle: written")
            manifest = Manifest(facts, tuple(_write_member(archive, each, meter) for each in sources))
            archive.write(b"\0" * 2 * _BLOCK)
            archive.seek(_BLOCK)
            archive.write(manifest.text().ljust(place))
            archive.flush()
            os.fsync(archive.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    return manifest


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, MODIFIED, 0o644
    # GNU's form has room for any size in the header's own block, so that it can be written again in place.
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _start_member(archive: IO[bytes], name: str, size: int) -> None:
    archive.write(_header(name, size))


def _end_member(archive: IO[bytes]) -> None:
    archive.write(b"\0" * (-archive.tell() % _BLOCK))


def _write_member(archive: IO[bytes], source: Source, meter: _Meter) -> Member:
    start = archive.tell()
    _start_member(archive, source.name, source.size or 0)
    digest, size = hashlib.sha256(), 0
    with _opened(source) as pieces:
        for piece in pieces:
            archive.write(piece)
            digest.update(piece)
            size += len(piece)
            meter.add(len(piece))
    member = Member(source.name, size, digest.hexdigest())
    if source.sha256 not in (None, member.sha256):
        raise OnecatError(
            f"{source.name} is not what it was a moment ago",
            expected=f"sha256 {source.sha256}",
            where=str(source.content) if isinstance(source.content, Path) else None,
            details=[f"sha256 {member.sha256} was read"],
            next_steps=["run the same command again"],
            code=ExitCode.NO,
        )
    _end_member(archive)
    if source.size != size:
        end = archive.tell()
        archive.seek(start)
        archive.write(_header(source.name, size))
        archive.seek(end)
    return member


@contextlib.contextmanager
def _opened(source: Source) -> Iterator[Iterable[bytes]]:
    if isinstance(source.content, bytes):
        yield [source.content]
    elif isinstance(source.content, Path):
        with source.content.open("rb") as stream:
            yield pieces_of(stream)
    else:
        with source.content() as pieces:
            yield pieces


def pieces_of(stream: IO[bytes]) -> Iterator[bytes]:
    """A stream in pieces of a megabyte."""
    while piece := stream.read(CHUNK_BYTES):
        yield piece


class _Meter:
    """Reports how far a job is, every PROGRESS_BYTES."""

    def __init__(self, total: int, report: Report, what: str) -> None:
        self.total, self.report, self.what = total, report, what
        self.done = self.told = 0

    def add(self, count: int) -> None:
        self.done += count
        if self.done - self.told >= PROGRESS_BYTES:
            self.told = self.done
            self.report(f"{self.what} {megabytes(self.done)} of {megabytes(max(self.total, self.done))}")


def read_manifest(path: Path) -> Manifest:
    """The manifest of a bundle; nothing else of it is read.

    Raises OnecatError (exit code 2) when the file is no bundle or one that this onecat does not know.
    """
    with _open(path) as stream:
        return _read_manifest(stream, path)


def _open(path: Path) -> IO[bytes]:
    if not path.is_file():
        found = f"{path} is not a file" if path.exists() else f"there is no file {path}"
        raise OnecatError(found, expected="a bundle", where=str(path.absolute()))
    return path.open("rb")


def _read_manifest(stream: IO[bytes], path: Path) -> Manifest:
    head = stream.read(_BLOCK)
    try:
        info = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
        if info.name != MANIFEST or not info.isreg() or info.size > MANIFEST_LIMIT:
            raise ValueError("its first member is no manifest")
        text = stream.read(info.size)
        if len(text) < info.size:
            raise _damaged(path, [f"it is cut off in its manifest, after {_BLOCK + len(text)} bytes"], cut=True)
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']}, this onecat reads {SCHEMA}")
        _check_facts(document)
        members = tuple(Member(str(row["name"]), int(row["size"]), str(row["sha256"])) for row in document["members"])
        if stream.read(-info.size % _BLOCK).strip(b"\0"):
            raise ValueError("there is something behind its manifest")
    except (tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise OnecatError(
            "this is no bundle of onecat",
            expected="a file that `onecat bundle create` has written",
            where=str(path.absolute()),
            details=[str(error)],
        ) from error
    facts = {key: value for key, value in document.items() if key not in ("schema", "members", "digest")}
    manifest = Manifest(facts, members)
    if document.get("digest") != manifest.digest:
        raise _damaged(path, ["its manifest was changed: its digest is not the one that it names"])
    for member in members:
        if not _is_safe(member.name):
            raise _damaged(path, [f"its manifest names {member.name!r}, a path that leads out of it"])
    if len({each.name for each in members}) != len(members):
        raise _damaged(path, ["its manifest names a member twice"])
    return manifest


def _check_facts(document: Mapping[str, Any]) -> None:
    """Raises KeyError, TypeError or ValueError where a manifest lacks what loading it relies on."""
    if not _PROFILE_NAME.fullmatch(document["profile"]["name"]) or not _SHA256.fullmatch(document["profile"]["sha256"]):
        raise ValueError("its profile has no name or no hash")
    texts = [document["onecat"], document["engine"]["name"], document["engine"]["version"], document["machine"]]
    texts += [row[key] for row in document["images"] for key in ("tag", "id")]
    texts += [str(int(row["size"])) for row in document["images"]]
    texts += document["pythons"]
    if document["series"] is not None:
        texts += [document["series"]["name"], document["series"]["digest"]]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("its manifest is malformed")


def _is_safe(name: str) -> bool:
    parts = PurePosixPath(name).parts
    plain = name == str(PurePosixPath(name)) and name.isprintable() and "\\" not in name
    return plain and bool(parts) and not name.startswith("/") and ".." not in parts


@dataclass(frozen=True)
class OpenMember:
    """A member while a bundle is read: its bytes can be had once, and are checked when they have all been had."""

    member: Member
    pieces: Iterator[bytes]


def members_of(path: Path, report: Report | None = None) -> Iterator[OpenMember]:
    """The members of a bundle in their order, each checked against the manifest while it is read.

    What the caller leaves unread of a member is passed over, not checked.

    Raises OnecatError (exit code 1) at the first thing that is not as the manifest says: a member that is missing, cut
    off, changed, of another kind or not named.
    """
    with _open(path) as stream:
        manifest = _read_manifest(stream, path)
        length = path.stat().st_size
        meter = _Meter(manifest.size, report or (lambda line: None), "bundle: read")
        for index, member in enumerate(manifest.members):
            info = _next_header(stream)
            if info is None or stream.tell() + member.size > length:
                left = [each.name for each in manifest.members[index:]]
                raise _damaged(path, [f"it is cut off: it ends in {left[0]}", *_missing(left)], cut=True)
            if info.name != member.name:
                raise _damaged(path, [f"it holds {info.name!r} where its manifest has {member.name}"])
            if not info.isreg():
                raise _damaged(path, [f"{member.name} is no plain file (tar's type {info.type!r})"])
            if info.size != member.size:
                raise _damaged(path, [f"{member.name} has {info.size} bytes, the manifest says {member.size}"])
            start = stream.tell()
            yield OpenMember(member, _checked(stream, member, path, meter))
            stream.seek(start + member.size)
            if stream.read(-member.size % _BLOCK).strip(b"\0"):
                raise _damaged(path, [f"there is something behind {member.name} that belongs to no member"])
        rest = stream.read(2 * _BLOCK + 1)
        if len(rest) < 2 * _BLOCK:
            raise _damaged(path, ["it is cut off at its very end"], cut=True)
        if rest != b"\0" * 2 * _BLOCK:
            raise _damaged(path, ["there is more in it than its manifest names"])


def _missing(names: list[str]) -> list[str]:
    more = [f"missing: {name}" for name in names[:3]]
    return [*more, f"and {len(names) - 3} more"] if len(names) > 3 else more


def _next_header(stream: IO[bytes]) -> tarfile.TarInfo | None:
    """The next member's header, its long name (GNU's form) included; None at the end of the file or in zeros."""
    name = None
    while True:
        block = stream.read(_BLOCK)
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError:
            return None
        if info.type != tarfile.GNUTYPE_LONGNAME or info.size > 10 * _BLOCK or name is not None:
            info.name = name or info.name
            return info
        padded = stream.read(-(-info.size // _BLOCK) * _BLOCK)
        name = padded.rstrip(b"\0").decode("utf-8", "surrogateescape")


def _checked(stream: IO[bytes], member: Member, path: Path, meter: _Meter) -> Iterator[bytes]:
    digest, left = hashlib.sha256(), member.size
    while left:
        piece = stream.read(min(CHUNK_BYTES, left))
        if not piece:
            raise _damaged(path, [f"it is cut off: it ends in {member.name}"], cut=True)
        digest.update(piece)
        left -= len(piece)
        meter.add(len(piece))
        yield piece
    if digest.hexdigest() != member.sha256:
        found = [f"{member.name} has sha256 {digest.hexdigest()}", f"the manifest says {member.sha256}"]
        raise _damaged(path, found)


def verify_bundle(path: Path, report: Report) -> Manifest:
    """Read a whole bundle and check every byte of it. Raises OnecatError as `members_of` and `read_manifest` do."""
    for each in members_of(path, report):
        for _ in each.pieces:
            pass
    return read_manifest(path)


def _damaged(path: Path, details: list[str], cut: bool = False) -> OnecatError:
    step = "copy it again: the copy stopped early" if cut else "get it again from where it was made"
    return OnecatError(
        "this bundle is damaged",
        expected="every member with the size and SHA-256 that its manifest says, and nothing else",
        where=str(path.absolute()),
        details=details,
        next_steps=[step, "nothing of it was used"],
        code=ExitCode.NO,
    )
