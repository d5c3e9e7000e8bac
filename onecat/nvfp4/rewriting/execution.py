"""Carrying a plan out."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass

import numpy

from onecat.checkpoints.safetensors_header import BITS
from onecat.nvfp4.rewriting.progress import Progress, Say, Show
from onecat.nvfp4.rewriting.records import Contents, Rewrite, Shard, Step, StepReport
from onecat.nvfp4.rewriting.source import SourceFiles


@dataclass(frozen=True)
class Rewritten:
    """A directory that is whole.

    reports: of all steps, also those of an earlier run. bytes_read, bytes_written: of all tensors. seconds: of this
    run. reused: files that an earlier run had finished. bytes_reused: what was not read again for its sake.
    """

    reports: tuple[StepReport, ...]
    bytes_read: int
    bytes_written: int
    seconds: float
    reused: tuple[str, ...] = ()
    bytes_reused: int = 0


def rewrite(
    work: Rewrite,
    source: SourceFiles,
    show: Show = lambda progress: None,
    say: Say = lambda line: None,
) -> Rewritten:
    """Write the new checkpoint, or what an earlier run of the same work has left.

    Raises OnecatError when the target holds something else, there is no room, or a step cannot be made (naming its
    module); OSError when a file cannot be read or written. Nothing that looks finished is left then.
    """
    began = time.monotonic()
    work.target.mkdir(parents=True, exist_ok=True)
    total = sum(source.tensors[name].bytes for shard in work.shards for step in shard.steps for name in step.reads)
    reports: list[StepReport] = []
    done = 0
    for shard in work.shards:
        with (work.target / shard.file).open("wb") as stream:
            stream.write(_header(shard))
            for step in shard.steps:
                read = sum(source.tensors[name].bytes for name in step.reads)
                made = _contents(step, source)
                written = 0
                for array in made.arrays:
                    stream.write(numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).data)
                    written += array.nbytes
                reports.append(StepReport(step.module, dict(made.measured), read, written))
                done += read
                show(Progress(done, total, time.monotonic() - began, step.module))
    for name in work.copied:
        shutil.copyfile(work.source / name, work.target / name)
    for name, text in work.documents.items():
        (work.target / name).write_text(text)
    return Rewritten(tuple(reports), done, sum(each.bytes_written for each in reports), time.monotonic() - began)


def _contents(step: Step, source: SourceFiles) -> Contents:
    return Contents([source.raw(step.reads[0])]) if step.make is None else step.make(source)


def _header(shard: Shard) -> bytes:
    rows: dict[str, object] = {"__metadata__": dict(shard.metadata)}
    position = 0
    for step in shard.steps:
        for name, dtype, shape in step.outputs:
            size = int(numpy.prod(shape, dtype=numpy.int64)) * BITS[dtype] // 8
            rows[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
            position += size
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
