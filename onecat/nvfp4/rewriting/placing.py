"""Small files of a new checkpoint: written whole, and seen in their places only then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO

from onecat.files import naming
from onecat.nvfp4.rewriting.state import sync_directory
from onecat.own_files import open_own


def place_text(text: str, place: Path, folder: Path) -> None:
    """Write a text to its place, atomically, by way of the state folder. Raises OSError."""
    scratch = folder / "document.unfinished"
    with naming(scratch), _scratch(scratch) as stream:
        stream.write(text.encode())
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(place)
    sync_directory(place.parent)


def place_copy(source: Path, place: Path, folder: Path) -> None:
    """Copy what a file holds, and not a link to it, as `place_text`. Raises OSError."""
    scratch = folder / "copy.unfinished"
    with source.open("rb") as given, naming(scratch), _scratch(scratch) as stream:
        shutil.copyfileobj(given, stream, 1 << 20)
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(place)
    sync_directory(place.parent)


def _scratch(path: Path) -> BinaryIO:
    return os.fdopen(open_own(path, os.O_WRONLY | os.O_TRUNC), "wb")
