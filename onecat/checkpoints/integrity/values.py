"""Floating-point values of stored tensors, told by their bits: NaN, infinities, zeros, negatives.

Every format is read as whole numbers, so no library of float formats is needed. Formats: IEEE 754; bfloat16; OCP 8-bit
floating point and OCP Microscaling Formats 1.0 (https://www.opencompute.org/documents), where E4M3 has no infinity and
E8M0 is an exponent alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from onecat.checkpoints.safetensors_header import Header, Tensor

if TYPE_CHECKING:
    import numpy

CHUNK = 4 << 20
"""Bytes read at a time by each thread."""


@dataclass(frozen=True)
class Format:
    """Bits of a float: `word` the numpy type of the same width, `infinity` the bits of infinity without the sign.

    nan: the only bits without the sign that are none, for formats without infinity.
    """

    word: str
    magnitude: int
    infinity: int | None
    nan: int | None = None


FORMATS = {
    "F64": Format("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    "F32": Format("<u4", 0x7FFF_FFFF, 0x7F80_0000),
    "F16": Format("<u2", 0x7FFF, 0x7C00),
    "BF16": Format("<u2", 0x7FFF, 0x7F80),
    "F8_E5M2": Format("u1", 0x7F, 0x7C),
    "F8_E4M3": Format("u1", 0x7F, None, 0x7F),
    "F8_E8M0": Format("u1", 0xFF, None, 0xFF),
}


@dataclass(frozen=True)
class Counts:
    """How many values of a tensor are NaN, infinite, zero, or below zero."""

    nan: int = 0
    infinite: int = 0
    zero: int = 0
    negative: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.nan + other.nan,
            self.infinite + other.infinite,
            self.zero + other.zero,
            self.negative + other.negative,
        )


def count(data: bytes | bytearray | memoryview, dtype: str, *, signs: bool = True) -> Counts:
    """The counts of some values. signs: count zeros and negatives too, which takes twice the time."""
    import numpy

    form = FORMATS[dtype]
    words: numpy.ndarray[Any, Any] = numpy.frombuffer(data, form.word)
    kind = words.dtype.type
    size = words & kind(form.magnitude) if form.magnitude != 0xFF else words
    if form.infinity is not None:
        special = int(numpy.count_nonzero(size >= kind(form.infinity)))
        infinite = int(numpy.count_nonzero(size == kind(form.infinity))) if special else 0
        nan = special - infinite
    else:
        nan, infinite = int(numpy.count_nonzero(size == kind(form.nan or 0))), 0
    if not signs or form.magnitude == 0xFF:
        return Counts(nan, infinite)
    zero = words.size - int(numpy.count_nonzero(size))
    signed = int(numpy.count_nonzero(words > kind(form.magnitude)))
    if signed and zero:
        signed -= int(numpy.count_nonzero(words == kind(form.magnitude + 1)))
    return Counts(nan, infinite, zero, signed)


def scan(
    directory: Path,
    wanted: Iterable[tuple[str, Header, list[tuple[Tensor, str]]]],
    *,
    signs: bool,
    jobs: int,
    tell: Callable[[int], None] = lambda read: None,
    stop: Event | None = None,
) -> Iterator[tuple[str, Tensor, Counts]]:
    """Count the values of some tensors, file by file, in `jobs` threads; those with nothing to tell are left out.

    Parameters:
        wanted: for each file its header and the tensors to read, each with the format to read it as.
        tell: called with the bytes of each piece that was read, from any thread.
        stop: ends the reading when it is set.

    Raises OSError when a file cannot be read, or is shorter than it was.
    """
    ended = stop or Event()
    with ThreadPoolExecutor(jobs) as pool:
        files = [pool.submit(_scan_file, directory, *each, signs, tell, ended) for each in wanted]
        try:
            for each in files:
                yield from each.result()
        finally:
            # Whatever ended this early, the threads are not to read on.
            ended.set()


def _scan_file(
    directory: Path,
    name: str,
    header: Header,
    tensors: list[tuple[Tensor, str]],
    signs: bool,
    tell: Callable[[int], None],
    stop: Event,
) -> list[tuple[str, Tensor, Counts]]:
    found: list[tuple[str, Tensor, Counts]] = []
    buffer = memoryview(bytearray(CHUNK))
    with (directory / name).open("rb", buffering=0) as file:
        for tensor, dtype in tensors:
            counts = Counts()
            for begin in range(tensor.begin, tensor.end, CHUNK):
                if stop.is_set():
                    return found
                piece = buffer[: min(CHUNK, tensor.end - begin)]
                _fill(file.fileno(), piece, header.data_start + begin, directory / name)
                counts += count(piece, dtype, signs=signs)
                tell(len(piece))
            if counts != Counts():
                found.append((name, tensor, counts))
    return found


def _fill(descriptor: int, piece: memoryview, offset: int, path: Path) -> None:
    done = 0
    while done < len(piece):
        read = os.preadv(descriptor, [piece[done:]], offset + done)
        if read == 0:
            raise OSError(None, "became shorter while it was read", str(path))
        done += read
