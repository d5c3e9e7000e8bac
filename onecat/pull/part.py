"""A file that is being fetched: its bytes so far on disk, and a journal that says which of them are there.

DIRECTORY/.onecat-pull holds NAME.partial and NAME.json. The journal names only ranges whose bytes were written and,
where `sync` was asked for, are on the disk; so what is in it holds after a kill and after a power cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from onecat.files import naming, read_json, write_json
from onecat.own_files import open_own
from onecat.pull.ranges import Range, length, merged, missing, piece_size, pieces, prefix
from onecat.pull.records import RemoteFile

SCHEMA = "onecat.pull-part/1"
_READ_BYTES = 2**21


@dataclass(frozen=True)
class Version:
    """Which version of a remote file the bytes belong to. validator: its ETag, else its date, as the server said."""

    size: int | None
    sha256: str | None
    blob: str | None
    validator: str | None

    def is_certain(self) -> bool:
        """Whether bytes of two runs can be told to belong together."""
        return self.sha256 is not None or self.blob is not None or self.validator is not None


@dataclass
class Claim:
    """A piece that one connection fetches. position: bytes before it are written; end: None up to the end of the file.

    is_dropped: the file begins anew, and what this connection still gets is of no use.
    """

    start: int
    end: int | None
    position: int
    is_dropped: bool = False


class Part:
    """The part of one file; safe for threads.

    resumed: bytes that an earlier run left. size: bytes of the whole file; None until a server tells it.
    """

    def __init__(self, folder: Path, file: RemoteFile, connections: int) -> None:
        self.file = file
        self.size = file.size
        self.validator: str | None = None
        self.can_range: bool | None = None  # None until the first answer
        self.is_finishing = False
        self._connections = connections
        name = f"{hashlib.sha256(file.path.encode()).hexdigest()[:8]}-{file.path.rpartition('/')[2][:60]}"
        self.path, self._journal = folder / f"{name}.partial", folder / f"{name}.json"
        self._lock = threading.RLock()
        self._hashing, self._saving = threading.Lock(), threading.Lock()
        self._claims: list[Claim] = []
        self._done: tuple[Range, ...] = self._kept()
        self.resumed = length(self._done)
        self.received = 0
        self._descriptor = open_own(self.path, os.O_RDWR | (0 if self._done else os.O_TRUNC))
        self._reset_digests()

    def _reset_digests(self) -> None:
        self.hashed = 0
        self._sha256 = hashlib.sha256()
        self._blob = hashlib.sha1(usedforsecurity=False) if self.file.blob and self.size is not None else None
        if self._blob is not None:
            self._blob.update(f"blob {self.size}\0".encode())

    def _kept(self) -> tuple[Range, ...]:
        """The ranges of an earlier run, when they are of the same version of the file."""
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
            document = read_json(self._journal)
            if document is None or document["schema"] != SCHEMA or document["path"] != self.file.path:
                return ()
            kept = Version(**document["version"])
            told = Version(self.file.size, self.file.sha256, self.file.blob, kept.validator)
            same = (kept.sha256, kept.blob) == (told.sha256, told.blob) and told.size in (None, kept.size)
            if same and kept.is_certain():
                self.size, self.validator = kept.size, kept.validator
                there = self.path.stat().st_size
                return merged((int(start), min(int(end), there)) for start, end in document["ranges"])
        return ()

    @property
    def is_content_known(self) -> bool:
        """Whether a checksum decides in the end, so that another ETag on another mirror does not matter."""
        return self.file.check is not None

    def claim(self) -> Claim | None:
        """A piece for one more connection; None when there is nothing to do now."""
        with self._lock:
            if self.is_finishing or (self._claims and not self.can_range):
                return None
            if self.size is None or self.can_range is False:
                if self._claims or self.is_complete:
                    return None
                return self._claimed(prefix(self._done) if self.size is None else 0, self.size)
            taken = [(each.start, each.end or self.size) for each in self._claims]
            gaps = missing([*self._done, *taken], self.size)
            for start, end in pieces(gaps, piece_size(self.size, self._connections)):
                return self._claimed(start, end)
            return None

    def _claimed(self, start: int, end: int | None) -> Claim:
        claim = Claim(start, end, start)
        self._claims.append(claim)
        return claim

    def release(self, claim: Claim) -> None:
        """A connection is done with its piece: what it wrote counts, the rest can be claimed again."""
        with self._lock:
            if claim in self._claims:
                self._claims.remove(claim)
                self._done = merged([*self._done, (claim.start, claim.position)])

    def write(self, claim: Claim, chunk: bytes) -> bool:
        """Write the next bytes of a piece; False when the piece is dropped, and nothing was. Raises OSError."""
        view = memoryview(chunk)
        with self._lock, naming(self.path):
            if claim.is_dropped or self._descriptor < 0:
                return False
            while view:
                written = os.pwrite(self._descriptor, view, claim.position)
                if claim.position == self.hashed and self._hashing.acquire(blocking=False):
                    try:
                        if claim.position == self.hashed:
                            self._update(view[:written])
                    finally:
                        self._hashing.release()
                claim.position += written
                self.received += written
                view = view[written:]
        return True

    def _update(self, content: bytes | memoryview) -> None:
        self._sha256.update(content)
        if self._blob is not None:
            self._blob.update(content)
        self.hashed += len(content)

    def catch_up(self, wait: bool = False) -> None:
        """Hash what is there from the first byte on and is not hashed yet. wait: for a thread that is at it."""
        if not self._hashing.acquire(blocking=wait):
            return
        try:
            limit = prefix(self.ranges())
            while self.hashed < limit:
                content = os.pread(self._descriptor, min(_READ_BYTES, limit - self.hashed), self.hashed)
                if not content:
                    break
                self._update(content)
        finally:
            self._hashing.release()

    def ranges(self) -> tuple[Range, ...]:
        """What is written so far."""
        with self._lock:
            return merged([*self._done, *((each.start, each.position) for each in self._claims)])

    @property
    def done(self) -> int:
        """Bytes that are written so far."""
        return length(self.ranges())

    @property
    def is_complete(self) -> bool:
        with self._lock:
            return self.size is not None and not missing(self._done, self.size)

    def begin_anew(self, claim: Claim, can_range: bool | None) -> None:
        """Forget all bytes: the server gives the file only as a whole, or another version of it.

        The claim becomes that of the whole file.
        """
        with self._hashing, self._lock:  # in this order, as `catch_up`
            for other in self._claims:
                other.is_dropped = other is not claim
            self._done, self._claims = (), [claim]
            claim.start, claim.position, claim.end = 0, 0, self.size
            self.can_range = can_range
            self.resumed = 0
            os.ftruncate(self._descriptor, 0)
            self._reset_digests()

    def version(self) -> Version:
        return Version(self.size, self.file.sha256, self.file.blob, self.validator)

    def save(self, sync: bool = True) -> int:
        """Write the journal; returns how many bytes it names. sync: bring the bytes to the disk first."""
        with self._saving:
            ranges = self.ranges()
            if self._descriptor < 0:
                return 0
            if sync:
                os.fdatasync(self._descriptor)
            document = {"schema": SCHEMA, "path": self.file.path, "version": asdict(self.version()), "ranges": ranges}
            write_json(self._journal, document, 0o644)
            return length(ranges)

    def digests(self) -> tuple[str, str | None]:
        """SHA-256 and, where the hub tells one, the git blob's SHA-1 of the whole file, in hex."""
        self.catch_up(wait=True)
        return self._sha256.hexdigest(), self._blob.hexdigest() if self._blob is not None else None

    def beginning(self, count: int) -> bytes:
        """The first bytes of the file."""
        return os.pread(self._descriptor, count, 0)

    def modified(self) -> int:
        """The file's st_mtime_ns, which it keeps when it is moved."""
        return os.fstat(self._descriptor).st_mtime_ns

    def move_to(self, target: Path) -> None:
        """Put the whole file in its place, atomically. Raises OSError."""
        with self._saving:
            os.fsync(self._descriptor)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.path.replace(target)
            self._journal.unlink(missing_ok=True)
            self.close()

    def remove(self) -> None:
        """Throw the part away."""
        with self._saving:
            self.path.unlink(missing_ok=True)
            self._journal.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Give the file back; nothing is written any more."""
        with self._hashing, self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


def allocated(folder: Path) -> int:
    """Bytes that all parts in a folder take on the disk now."""
    return sum(each.stat().st_blocks * 512 for each in folder.glob("*.partial"))
