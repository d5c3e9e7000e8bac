"""A checkpoint written again with some of its tensors changed, as a faulty tool would have written it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from onecat.nvfp4.rewriting import SourceFiles, open_source
from tests.safetensors_files import write_safetensors

Array = NDArray[Any]
Change = Callable[[str, Array], Array | None]
"""Gives the new contents of a tensor, None to leave it out."""

FILE = "model.safetensors"


def opened(directory: Path) -> SourceFiles:
    return open_source(directory, (FILE,))


def variant(directory: Path, target: Path, change: Change) -> Path:
    """A copy of a checkpoint of one weight file with its tensors changed."""
    target.mkdir()
    for each in directory.iterdir():
        if each.name != FILE:
            shutil.copy(each, target)
    source = opened(directory)
    tensors = {}
    for name, stored in source.tensors.items():
        made = change(name, source.read(name))
        if made is not None:
            tensors[name] = (stored.dtype, list(made.shape), numpy.ascontiguousarray(made).tobytes())
    write_safetensors(target / FILE, tensors)
    return target


def swap_nibbles(name: str, values: Array) -> Array:
    """The even column in the high four bits."""
    if name.endswith(".weight_packed") or (name.endswith(".weight") and values.dtype == numpy.uint8):
        return (values >> 4) | (values << 4)
    return values
