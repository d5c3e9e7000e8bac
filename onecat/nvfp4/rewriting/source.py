"""Reading the tensors of a checkpoint one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy

from onecat.checkpoints.safetensors_header import Header, read_header
from onecat.errors import OnecatError
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array


class SourceTensor(NamedTuple):
    """Where a tensor lies. begin, bytes: in the file, its header counted."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    bytes: int


@dataclass(frozen=True)
class SourceFiles:
    """The weight files of a checkpoint. tensors: by name, in the order of files and of their headers."""

    directory: Path
    tensors: Mapping[str, SourceTensor]
    headers: Mapping[str, Header]

    def read(self, name: str) -> Array:
        """The tensor's elements, in memory of its own.

        Raises KeyError, OSError, and OnecatError when the file became shorter.
        """
        tensor = self.tensors[name]
        return self.raw(name).view(NUMPY_TYPES[tensor.dtype]).reshape(tensor.shape)

    def raw(self, name: str) -> Array:
        """The tensor's bytes (uint8)."""
        tensor = self.tensors[name]
        content = numpy.empty(tensor.bytes, numpy.uint8)
        view, position = content.data, 0
        with (self.directory / tensor.file).open("rb", buffering=0) as stream:
            while position < tensor.bytes:
                count = os.preadv(stream.fileno(), [view[position:]], tensor.begin + position)
                if count == 0:
                    raise OnecatError(
                        f"{tensor.file} became shorter while it was read",
                        where=str(self.directory / tensor.file),
                        next_steps=[f"onecat model verify {self.directory}"],
                    )
                position += count
        return content

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
