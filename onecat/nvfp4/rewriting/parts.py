"""A weight file that is being written: its bytes on disk, and a journal that says what they have to be.

The state folder holds NUMBER.unfinished and NUMBER.jsonl. After each step the journal gets a line with the CRC-32 of
all bytes so far, so that what a killed run has left is taken further only as far as it is right, and a file in its
place is known to be whole.

The sum is to tell what a power cut or a bad disk does, not what a person does, who could write the
journal, too. SHA-256 takes as long as reading and writing together (measured: 1.2 GB/s with the processor's own
instructions for it, CRC-32 3.3 GB/s), and would hold up what dequantises.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from onecat.files import naming
from onecat.nvfp4.rewriting.layout import Layout
from onecat.nvfp4.rewriting.records import Shard, StepReport
from onecat.nvfp4.rewriting.state import sync_directory
from onecat.own_files import open_own

_PIECE = 1 << 22
"""Bytes that are summed and written at once."""


class _Line(NamedTuple):
    """A line of the journal. end: bytes of the file up to there. length: of the journal up to the line's end."""

    report: StepReport
    end: int
    crc32: int
    length: int


class Part:
    """The file of one shard. reports: of the steps that are written; bytes up to there are on disk."""

    def __init__(self, folder: Path, target: Path, number: int, shard: Shard, layout: Layout) -> None:
        self.shard, self.layout = shard, layout
        self.path, self._journal = folder / f"{number}.unfinished", folder / f"{number}.jsonl"
        self.place = target / shard.file
        self.reports: list[StepReport] = []
        self._sum = 0
        self._descriptor = self._lines = -1

    @property
    def is_in_place(self) -> bool:
        """Whether an earlier run has put the file in its place, as far as its size and the journal tell."""
        return self._journal.is_file() and _size(self.place) == self.layout.size

    @property
    def allocated(self) -> int:
        """Bytes of the disk that what is written takes already."""
        if self.is_in_place:
            return self.layout.size
        return self.path.stat().st_blocks * 512 if _size(self.path) is not None else 0

    def verify_in_place(self, tell: Callable[[StepReport], None]) -> bool:
        """Whether the file is in its place and holds what was written, and `reports` are those of all steps.

        tell: called for each step whose bytes are right.
        """
        if not self.is_in_place:
            return False
        lines = self._verified(self.place, tell)
        self.reports = [line.report for line in lines]
        return len(lines) == len(self.shard.steps)

    def open(self, tell: Callable[[StepReport], None]) -> None:
        """Open the file for writing what `reports` then lacks: after the last step whose bytes are surely right.

        Raises OSError.
        """
        lines = [] if _size(self.path) is None else self._verified(self.path, tell)
        self.reports = [line.report for line in lines]
        self._descriptor = open_own(self.path, os.O_RDWR)
        self._lines = open_own(self._journal, os.O_WRONLY | os.O_APPEND)
        with naming(self.path):
            os.ftruncate(self._descriptor, lines[-1].end if lines else 0)
            os.ftruncate(self._lines, lines[-1].length if lines else 0)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        if not lines:
            self._sum = 0
            self.write(memoryview(self.layout.header))

    def write(self, content: memoryview) -> None:
        """Write the next bytes. Raises OSError."""
        with naming(self.path):
            for begin in range(0, len(content), _PIECE):
                piece = content[begin : begin + _PIECE]
                self._sum = zlib.crc32(piece, self._sum)
                while piece:
                    piece = piece[os.write(self._descriptor, piece) :]

    def note(self, report: StepReport) -> None:
        """All bytes of a step are written. Raises OSError."""
        end = self.layout.ends[len(self.reports)]
        row = {**report._asdict(), "end": end, "crc32": self._sum}
        line = memoryview(json.dumps(row).encode() + b"\n")
        with naming(self._journal):
            while line:
                line = line[os.write(self._lines, line) :]
        self.reports.append(report)

    def move_to_place(self) -> None:
        """Put the whole file in its place, when it is on the disk. Raises OSError."""
        with naming(self.path):
            os.fsync(self._descriptor)
            os.fsync(self._lines)
        self.close()
        sync_directory(self.path.parent)
        self.path.replace(self.place)
        sync_directory(self.place.parent)

    def close(self) -> None:
        """Write no more."""
        for descriptor in (self._descriptor, self._lines):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lines = -1

    def _verified(self, path: Path, tell: Callable[[StepReport], None]) -> list[_Line]:
        """The journal's lines up to which the bytes of a file are right; the sum is that of those bytes."""
        found: list[_Line] = []
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as stream:  # noqa: PTH123 - a link is refused
            if stream.read(len(self.layout.header)) != self.layout.header:
                return []
            so_far, position = zlib.crc32(self.layout.header), len(self.layout.header)
            for line in self._read_journal():
                while position < line.end and (piece := stream.read(min(_PIECE, line.end - position))):
                    so_far = zlib.crc32(piece, so_far)
                    position += len(piece)
                if position < line.end or so_far != line.crc32:
                    break
                self._sum = so_far
                found.append(line)
                tell(line.report)
        return found

    def _read_journal(self) -> Iterator[_Line]:
        """Lines that fit the plan, up to one that a kill cut off, or a power cut took."""
        if not self._journal.is_file() or self._journal.is_symlink():
            return
        length = 0
        with self._journal.open("rb") as stream, contextlib.suppress(ValueError, KeyError, TypeError):
            for line, step, end in zip(stream, self.shard.steps, self.layout.ends, strict=False):
                row = json.loads(line)
                length += len(line)
                report = StepReport(*(row[name] for name in StepReport._fields))
                if not line.endswith(b"\n") or row["end"] != end or report.module != step.module:
                    return
                yield _Line(report, end, row["crc32"], length)


def _size(path: Path) -> int | None:
    """The size of a file that is one, and no link."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None
