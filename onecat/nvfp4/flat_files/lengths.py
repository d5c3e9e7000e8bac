"""The arithmetic of flat files: what their lengths say, and by how many bytes they are wrong.

Of E weights in groups of g, with G = E / g groups: an 8-byte header (magic, G), 2 G bytes of scales, E / 2 bytes of
codes. In the other variant there is no header and the scales are a file of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.flat_files.layouts import CODES_IN_WORD, Layout

MAGIC = bytes.fromhex("1c0a0d0a")
HEADER_BYTES = 8
SCALE_BYTES = 2
OTHER_FILES = {
    b"PK\x03\x04": "a PyTorch file",
    b"GGUF": "a GGUF file",
    b"\x80\x02": "a pickle",
    b"version ": "a Git LFS pointer",
    b"{": "a JSON document",
}


@dataclass(frozen=True)
class Seen:
    """A flat file as it lies there. path, size: of the codes' file, in bytes.

    groups: as the header states them, None without a header or where it is cut off. scales, scales_size: the file of
    the scales where they have one.
    """

    path: Path
    size: int
    groups: int | None
    scales: Path | None = None
    scales_size: int = 0

    @property
    def has_header(self) -> bool:
        return self.scales is None

    @property
    def all_groups(self) -> int | None:
        """As the header states them, or as many as there are scales; None where the header is cut off."""
        return self.groups if self.has_header else self.scales_size // SCALE_BYTES

    @property
    def own_group_size(self) -> int | None:
        """What the lengths alone come to, without a table; None when that is no whole multiple of 8."""
        groups = self.all_groups
        codes = self.size - HEADER_BYTES - SCALE_BYTES * (groups or 0) if self.has_header else self.size
        if not groups or codes <= 0 or codes * 2 % (groups * CODES_IN_WORD):
            return None
        return codes * 2 // groups


def look(path: Path) -> Seen:
    """What lies at `path`, and `scales.bin` beside it.

    Raises OnecatError when it is no flat file; OSError when it cannot be read.
    """
    with path.open("rb") as stream:
        start = stream.read(HEADER_BYTES)
    size, scales = path.stat().st_size, path.with_name("scales.bin")
    has_magic = len(start) > 0 and MAGIC.startswith(start[: len(MAGIC)])
    if scales.is_file():
        if has_magic and len(start) >= len(MAGIC):
            raise _no_flat_file(path, "begins with the magic of files with scales, and scales.bin lies beside it",
                                f"move the one that does not belong there away: {scales}")  # fmt: skip
        return Seen(path, size, None, scales, scales.stat().st_size)
    if not start:
        raise _no_flat_file(path, "is empty", "copy it again")
    if has_magic:
        groups = int.from_bytes(start[4:8], "little") if len(start) == HEADER_BYTES else None
        return Seen(path, size, groups)
    if start[:4] == MAGIC[::-1]:
        raise _no_flat_file(path, "has its magic backwards: it was written on a machine with another byte order",
                            "write it anew in little endian")  # fmt: skip
    known = next((f", as {what} does" for begin, what in OTHER_FILES.items() if start.startswith(begin)), "")
    raise _no_flat_file(path, f"begins with {start[:4].hex(' ')}{known}, and there is no scales.bin beside it",
                        "name the file with the weights; without a header it needs scales.bin beside it")  # fmt: skip


def _no_flat_file(path: Path, what: str, step: str) -> OnecatError:
    return OnecatError(
        f"{path.name} {what}",
        expected=f"the bytes {MAGIC.hex(' ')} and a number of groups, or codes with scales.bin beside them",
        where=str(path),
        next_steps=[step],
    )


def group_size(seen: Seen, layout: Layout) -> int:
    """The group size of a file whose length is right for the table of tensors, which is not empty.

    Raises OnecatError with the number of bytes that are too many or lacking, in which part, and with the group size
    that would fit, if one does.
    """
    elements, groups = layout.elements, seen.all_groups
    size = layout.group_size
    if size is None and groups and elements % (groups * CODES_IN_WORD) == 0:
        size = elements // groups
    if size is not None:
        _check_groups(seen, layout, size)
    wanted = groups if size is None else elements // size
    if seen.has_header:
        _check_one_file(seen, layout, wanted)
    else:
        _check_two_files(seen, layout, wanted if size is not None else None)
    if size is None:
        raise _wrong(seen, layout, f"has {groups} scales, and no group size makes so many of {elements} weights")
    return size


def _check_groups(seen: Seen, layout: Layout, size: int) -> None:
    for name, shape in layout.tensors:
        if shape[1] % size:
            told = f"{shape[1]} in_features are no multiple of the group size {size}"
            raise _wrong(seen, layout, f"cannot hold {name} {list(shape)}: {told}")
    expected = layout.elements // size
    if seen.groups is not None and seen.groups != expected:
        more = seen.groups - expected
        told = f"{abs(more)} {'more' if more > 0 else 'fewer'}, which are {abs(more) * SCALE_BYTES} bytes of scales"
        raise _wrong(
            seen, layout,
            f"states {seen.groups} groups in its header, and {layout.elements} weights in groups of {size} make "
            f"{expected}: {told}",
        )  # fmt: skip


def _check_one_file(seen: Seen, layout: Layout, groups: int | None) -> None:
    codes = layout.elements // 2
    if seen.size < HEADER_BYTES:
        lacking = HEADER_BYTES - seen.size
        rest = "" if groups is None else f"; {lacking + groups * SCALE_BYTES + codes} with scales and codes"
        raise _wrong(seen, layout, f"is {lacking} bytes too short for its header{rest}")
    assert groups is not None
    scales = groups * SCALE_BYTES
    there = seen.size - HEADER_BYTES
    if there == scales + codes:
        return
    told = ("scales", there, scales) if there < scales else ("codes", there - scales, codes)
    raise _wrong(seen, layout, _by(there - scales - codes, *told))


def _check_two_files(seen: Seen, layout: Layout, groups: int | None) -> None:
    """groups: None where only the table's weights are known."""
    codes = layout.elements // 2
    if seen.size != codes:
        raise _wrong(seen, layout, _by(seen.size - codes, "codes", seen.size, codes))
    scales = None if groups is None else groups * SCALE_BYTES
    if scales is not None and seen.scales_size != scales:
        told = _by(seen.scales_size - scales, "scales", seen.scales_size, scales)
        raise _wrong(seen, layout, f"is right, but scales.bin {told}")
    if seen.scales_size % SCALE_BYTES:
        raise _wrong(seen, layout, f"is right, but scales.bin has {seen.scales_size} bytes and ends within a scale")


def _by(difference: int, part: str, there: int, wanted: int) -> str:
    """By how many bytes a file differs in all, and the first part that is not whole."""
    if difference < 0:
        return f"is {-difference} bytes too short: it ends in the {part}, {there} of {wanted} bytes of which are there"
    return f"is {difference} bytes too long: {there} bytes of {part} where {wanted} belong"


def _wrong(seen: Seen, layout: Layout, what: str) -> OnecatError:
    held = f"the table has {len(layout.tensors)} tensors with {layout.elements} weights"
    return OnecatError(
        f"{seen.path.name} {what}",
        expected="a file whose length is that of its header, scales and codes together",
        where=str(seen.path),
        details=[held, *_by_itself(seen, layout)],
        next_steps=[
            "compare its size with that of the original, and copy it again",
            "or correct the table of tensors or the group size in a layout file: --layout FILE",
        ],
        code=ExitCode.NO,
    )


def _by_itself(seen: Seen, layout: Layout) -> Iterator[str]:
    """What the lengths say without the table, and what would make them fit it."""
    size, groups = seen.own_group_size, seen.all_groups
    if size is None or groups is None:
        yield "by itself the file has no whole group size: it is cut off, or not of this kind"
        return
    held = size * groups
    yield f"by itself the file holds {held} weights in groups of {size}"
    if held == layout.elements and all(shape[1] % size == 0 for _, shape in layout.tensors):
        yield f"a group size of {size} would fit this table and this length"
    for name, shape in layout.left_out:
        if held - layout.elements == math.prod(shape):
            yield f"those are {name} {list(shape)} more than the table has: list it in a layout file"
