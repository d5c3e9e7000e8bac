"""Files of a build context that are too large for memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class StoredFile:
    """One file of a context whose bytes stay on disk.

    name: its path in the context. sha256: in hex; None while no hash of it is known. size: in bytes; None: not known.
    path: where it is streamed from; None until it has been fetched. The path is no part of what the file is.
    made_of: the file of the wheel store that this one is made of when it is needed; None: it lies there itself.
    origin: it says where packages come from and not what they are: no part of the context's digest.
    """

    name: str
    sha256: str | None
    size: int | None = None
    path: Path | None = field(default=None, compare=False)
    origin: bool = False
    made_of: str | None = None

    @property
    def in_store(self) -> str:
        """The file name that a store has it, or what it is made of, under."""
        return self.made_of or self.name.rpartition("/")[2]
