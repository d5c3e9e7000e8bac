"""The plan of a checkpoint that is to be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from onecat.nvfp4.rewriting.source import SourceFiles
from onecat.nvfp4.tensor_types import Array

Measured = Mapping[str, float]
"""What a step found out, by name: numbers for the report."""


class Made(NamedTuple):
    """A tensor of the new checkpoint. dtype: as safetensors names it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Contents(NamedTuple):
    """arrays: the contents of a step's outputs, in their order; each of the size in bytes that its `Made` has.

    A generator makes them one at a time and may fill `measured` while it does: it is looked at when all are there.
    """

    arrays: Iterable[Array]
    measured: Measured = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True)
class Step:
    """Tensors that are made together.

    module: what the report calls it (`model.layers.0.mlp.down_proj`). reads: names of source tensors, in the order in
    which `make` asks for them (twice where it does that): they are read ahead in that order. make: pure but for
    reading, called once, raises ValueError for contents that it cannot take ("3 of 12 weights are NaN"); None copies
    the one source tensor in `reads` byte for byte.
    """

    module: str
    outputs: tuple[Made, ...]
    reads: tuple[str, ...]
    make: Callable[[SourceFiles], Contents] | None = None


@dataclass(frozen=True)
class Shard:
    """One weight file of the new checkpoint, its tensors in the order of its steps. file: a name without a folder."""

    file: str
    steps: tuple[Step, ...]
    metadata: Mapping[str, str] = field(default_factory=lambda: {"format": "pt"})


@dataclass(frozen=True)
class Rewrite:
    """All that is to be written.

    source: the directory that is read, never changed. target: the directory that is made. documents: files of text
    (config.json, the index) by name, written last, so that nothing loads what is not whole. copied: names of files of
    the source that go along as they are, perhaps in folders. identity: JSON values by words that people know (options
    and their values; all that the bytes depend on) that, with the source's headers, sizes and times, say what is being
    made: a run with another identity does not go on with this one's work.

    restart (`--restart`): throw away what an unfinished run has made there. replace (`--replace`): the target may hold
    other things; files of the names that are written are replaced, others stay.
    """

    source: Path
    target: Path
    shards: tuple[Shard, ...]
    documents: Mapping[str, str]
    copied: tuple[str, ...]
    identity: Mapping[str, Any]
    restart: bool = False
    replace: bool = False


class StepReport(NamedTuple):
    """What a finished step measured. bytes_read, bytes_written: of its tensors."""

    module: str
    measured: Measured
    bytes_read: int
    bytes_written: int
