"""What costs minutes to make lives outside the checkout and is made anew when it is absent.

Entries are named by the hash of their inputs, appear whole (made under another name, then renamed) and are guarded by
a lock file, so two runs may share one cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

KEPT_SECONDS = 14 * 24 * 3600


@dataclass(frozen=True)
class Cache:
    """A folder for costly things.

    root: the folder; everything below may be deleted between runs.
    """

    root: Path

    def entry(self, name: str, inputs: tuple[str | bytes, ...], make: Callable[[Path], None]) -> Path:
        """The file `name` made from `inputs`; `make` writes it to the path it is given when it is not there yet."""
        digest = hashlib.sha256()
        for each in inputs:
            data = each.encode() if isinstance(each, str) else each
            digest.update(len(data).to_bytes(8, "big") + data)
        stem, dot, suffix = name.partition(".")
        path = self.root / f"{stem}-{digest.hexdigest()[:16]}{dot}{suffix}"
        with self.lock(path.name):
            if not path.exists():
                partial = path.with_name(f"{path.name}.partial")
                partial.unlink(missing_ok=True)
                make(partial)
                partial.rename(path)
            path.touch()
            self._forget_unused(f"{stem}-*{dot}{suffix}")
        return path

    def folder(self, name: str) -> Path:
        """A folder of the cache whose owner keys its content itself."""
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock of this name; waits for another run that holds it."""
        with self._lock_file(name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def lock_or_none(self, name: str) -> Iterator[bool]:
        """Hold the lock of this name if it is free; yields whether it was."""
        with self._lock_file(name).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _forget_unused(self, pattern: str) -> None:
        """Remove entries made from other inputs that no run has asked for in a while."""
        for path in self.root.glob(pattern):
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()

    def _lock_file(self, name: str) -> Path:
        return self.folder("locks") / f"{name}.lock"


@contextlib.contextmanager
def open_cache() -> Iterator[Cache]:
    """The cache that `ONECAT_TEST_CACHE` names (default: onecat-tests in the user's cache folder).

    Where that folder cannot be written, a temporary one that goes away afterwards.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = Path(os.environ.get("ONECAT_TEST_CACHE") or caches / "onecat-tests").absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / ".onecat-test-cache").touch()  # what `make clean-cache` looks for before it removes anything
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError:
        temporary = Path(tempfile.mkdtemp(prefix="onecat-test-cache-"))
        yield Cache(temporary)
        shutil.rmtree(temporary)
    else:
        yield Cache(root)
