"""Making the tensors of one weight file, one step after the other, while others are read and written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy

from onecat.nvfp4.rewriting.failures import no_memory, refused_contents
from onecat.nvfp4.rewriting.layout import bytes_read, size_of
from onecat.nvfp4.rewriting.memory import Memory
from onecat.nvfp4.rewriting.parts import Part
from onecat.nvfp4.rewriting.progress import Count
from onecat.nvfp4.rewriting.reading import ReadAhead
from onecat.nvfp4.rewriting.records import Step, StepReport
from onecat.nvfp4.rewriting.source import SourceFiles
from onecat.nvfp4.rewriting.writing import WriteBehind
from onecat.nvfp4.tensor_types import Array

PIECE = 1 << 24
"""Bytes of a tensor that is copied which are read at once."""


def write_part(part: Part, source: SourceFiles, memory: Memory, count: Count) -> None:
    """Write what an open part lacks, and put it in its place; what is written stays when this fails.

    Raises OnecatError for contents that a step refuses; OSError.
    """
    steps = part.shard.steps[len(part.reports) :]
    ahead = ReadAhead(source, steps, memory)
    behind = WriteBehind(part, memory)
    try:
        given = replace(source, fetch=ahead.take)
        for step in steps:
            try:
                _write_step(step, given, behind, count)
            except ValueError as error:
                raise refused_contents(step.module, error, source.directory, part.place.parent) from error
            except MemoryError as error:
                raise no_memory(step.module, part.place.parent) from error
            ahead.end_step(step)
        behind.finish()
        part.move_to_place()
    finally:
        behind.stop()
        ahead.stop()
        part.close()


def _write_step(step: Step, source: SourceFiles, behind: WriteBehind, count: Count) -> None:
    if step.make is None:
        _copy(step, source, behind, count)
        return
    contents = step.make(source)
    written = 0
    arrays = iter(contents.arrays)
    for made in step.outputs:
        array = next(arrays, None)
        assert array is not None, f"{step.module}: nothing was made for {made.name}"
        assert array.nbytes == size_of(made), (
            f"{step.module}: {made.name} has {array.nbytes} bytes, not {size_of(made)}"
        )
        written += array.nbytes
        behind.put(_bytes_of(array))
    assert next(arrays, None) is None, f"{step.module}: more was made than was planned"
    read = bytes_read(step, source)
    measured = {name: float(value) for name, value in contents.measured.items()}
    behind.end_step(StepReport(step.module, measured, read, written))
    count.add(read, step.module)


def _copy(step: Step, source: SourceFiles, behind: WriteBehind, count: Count) -> None:
    (name,), (made,) = step.reads, step.outputs
    size = source.tensors[name].bytes
    assert size == size_of(made), f"{step.module}: {made.name} has {size_of(made)} bytes, its source {size}"
    for begin, end in _pieces(size):
        behind.put(source.piece(name, begin, end).data)
        count.add(end - begin, step.module)
    behind.end_step(StepReport(step.module, {}, size, size))


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, size, PIECE):
        yield begin, min(begin + PIECE, size)


def _bytes_of(array: Array) -> memoryview:
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).data
