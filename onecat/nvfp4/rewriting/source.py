"""Reading the tensors of a checkpoint one at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy

from onecat.checkpoints.safetensors_header import Header, read_header, read_header_text
from onecat.errors import OnecatError
from onecat.files import naming
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array


class SourceTensor(NamedTuple):
    """Where a tensor lies. begin, bytes: in the file, its header counted."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    bytes: int


@dataclass(frozen=True)
class Fingerprint:
    """What tells that a file is still the one that was read. modified: st_mtime_ns. header: SHA-256 (hex) of it."""

    size: int
    modified: int
    header: str | None = None


@dataclass(frozen=True)
class SourceFiles:
    """The weight files of a checkpoint. tensors: by name, in the order of files and of their headers.

    headers: of the files that are safetensors. fetch: gives the bytes of a tensor in place of its file, as the
    executor does with what it has read ahead.
    """

    directory: Path
    tensors: Mapping[str, SourceTensor]
    headers: Mapping[str, Header]
    fetch: Callable[[str], Array] | None = field(default=None, compare=False)

    def read(self, name: str) -> Array:
        """The tensor's elements, in memory of its own.

        Raises KeyError, OSError, and OnecatError when the file became shorter.
        """
        tensor = self.tensors[name]
        return self.raw(name).view(NUMPY_TYPES[tensor.dtype]).reshape(tensor.shape)

    def raw(self, name: str) -> Array:
        """The tensor's bytes (uint8). Raises as `read` does."""
        return self.fetch(name) if self.fetch is not None else self.piece(name, 0, self.tensors[name].bytes)

    def piece(self, name: str, begin: int, end: int) -> Array:
        """Some of the tensor's bytes, from its file. Raises as `read` does."""
        tensor = self.tensors[name]
        path = self.directory / tensor.file
        content = numpy.empty(end - begin, numpy.uint8)
        view, position = content.data, 0
        with naming(path), path.open("rb", buffering=0) as stream:
            while position < len(view):
                count = os.preadv(stream.fileno(), [view[position:]], tensor.begin + begin + position)
                if count == 0:
                    raise OnecatError(
                        f"{tensor.file} became shorter while it was read",
                        where=str(path),
                        next_steps=[f"onecat model verify {self.directory}"],
                    )
                position += count
        return content

    def fingerprints(self) -> dict[str, Fingerprint]:
        """Of all files, as they are on the disk now. Raises OSError, and HeaderError when one is damaged now."""
        found = {}
        for file in sorted({*self.headers, *(each.file for each in self.tensors.values())}):
            path = self.directory / file
            seen = path.stat()
            header = hashlib.sha256(read_header_text(path)[0]).hexdigest() if file in self.headers else None
            found[file] = Fingerprint(seen.st_size, seen.st_mtime_ns, header)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)


def open_source(directory: Path, files: tuple[str, ...]) -> SourceFiles:
    """Read the headers of a checkpoint's weight files (`Checkpoint.files`).

    Raises HeaderError for a file that is not whole, OSError for one that cannot be read.
    """
    tensors: dict[str, SourceTensor] = {}
    headers = {}
    for file in files:
        header = read_header(directory / file)
        headers[file] = header
        for each in header.tensors:
            tensors[each.name] = SourceTensor(
                file, each.dtype, each.shape, header.data_start + each.begin, each.end - each.begin
            )
    return SourceFiles(directory, tensors, headers)
