"""A fast way through headers in the very form that the safetensors library writes, expert after expert.

Some checkpoints have hundreds of thousands of tensors, which are the same few of each expert in turn. The tensors of an
expert are read one by one; those of the next are foretold from them, and the header is of that form where the text that
they would then have is its own. So nothing is parsed, and no object made, for most tensors before someone asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, overload

from onecat.checkpoints.safetensors_json import MAXIMUM_NUMBER, METADATA, metadata_of, strict_object, tensor_of
from onecat.checkpoints.safetensors_records import BITS, Tensor

_NAME, _OFFSETS, _END = '":{"dtype":"', '],"data_offsets":[', ']},"'
_TENSOR = re.compile(
    r'([^"\\\x00-\x1f]*)":\{"dtype":"(([A-Z0-9_]+)","shape":\[([0-9,]*))\],"data_offsets":\[([0-9]+),([0-9]+)\]\},"'
)
"""A tensor and the quote before the next one's name. JSON text has the bytes that are left out only escaped."""

_EXPERT = re.compile(r"(\.experts\.)[0-9]+(?=\.|\Z)")


class Kind(NamedTuple):
    """What tensors alike have in common; length in bytes."""

    dtype: str
    shape: tuple[int, ...]
    length: int


class Group:
    """Tensors that follow each other, as several experts have them. members: what comes after the expert's number in
    their names, and what they are. length: in bytes."""

    __slots__ = ("_pieces", "endings", "ends", "length", "members")

    def __init__(self, members: Sequence[tuple[str, str, Kind]]) -> None:
        self.members = tuple((ending, kind) for ending, _, kind in members)
        self.endings = frozenset(ending for ending, _ in self.members)
        self.ends = tuple(accumulate(kind.length for _, kind in self.members))
        self.length = self.ends[-1]
        between = [(ending + _NAME + text + _OFFSETS) for ending, text, _ in members]
        self._pieces = [piece for each in between for piece in ("", each, "", ",", "", _END)]

    def text(self, head: str, begin: int) -> str:
        """What a header says of them where their names begin with `head` and their data at `begin`."""
        ends = [str(begin + end) for end in self.ends]
        pieces = self._pieces.copy()
        pieces[0::6], pieces[2::6], pieces[4::6] = [head] * len(ends), [str(begin), *ends[:-1]], ends
        return "".join(pieces)


class Stretch(NamedTuple):
    """One expert's part of a header, or one tensor that is of none. stem, number: what the names begin with, both empty
    without an expert. begin: offset in bytes."""

    stem: str
    number: str
    group: Group
    begin: int


@dataclass(frozen=True)
class Stretches(Sequence[Tensor]):
    """Tensors in file order, made when one is asked for."""

    stretches: Sequence[Stretch]

    @property
    def data_bytes(self) -> int:
        last = self.stretches[-1]
        return last.begin + last.group.length

    def __len__(self) -> int:
        return sum(len(each.group.ends) for each in self.stretches)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors)

    @overload
    def __getitem__(self, at: int) -> Tensor: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Tensor]: ...

    def __getitem__(self, at: int | slice) -> Tensor | Sequence[Tensor]:
        return self._tensors[at]

    @cached_property
    def _tensors(self) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(f"{stem}{number}{ending}", kind.dtype, kind.shape, begin + end - kind.length, begin + end)
            for stem, number, group, begin in self.stretches
            for (ending, kind), end in zip(group.members, group.ends, strict=True)
        )


def from_groups(text: str) -> tuple[Stretches, dict[str, str]] | None:
    """What `from_json` gives; None for a header in another form and at any doubt about it."""
    found = _around(text)
    if found is None:
        return None
    first, last, metadata = found
    reader = _Reader(text[first:last] + _END)
    if not reader.read():
        return None
    tensors = Stretches(reader.stretches)
    return (tensors, metadata) if tensors.data_bytes <= MAXIMUM_NUMBER else None


class _Reader:
    """Goes through the tensors of one header. at: in the text; begin: in the data."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.begin = 0
        self.stretches: list[Stretch] = []
        self._kinds: dict[str, Kind] = {}
        self._groups: dict[tuple[tuple[str, str, Kind], ...], Group] = {}
        self._endings: dict[str, frozenset[str] | set[str]] = {}
        self._names: set[str] = set()
        self._stem, self._number = "", ""
        self._members: list[tuple[str, str, Kind]] = []
        self._foretold: Group | None = None

    def read(self) -> bool:
        """Whether all of the text is in this form, and no name in it twice."""
        while self.at < len(self.text):
            if not self._next_tensor() or not self._experts_alike():
                return False
        return self._finish()

    def _experts_alike(self) -> bool:
        """Take the experts that follow whose tensors are those of the one before. False for a name twice."""
        text, stem = self.text, self._stem
        while stem and text.startswith(stem, self.at):
            begin = self.at + len(stem)
            number = text[begin : text.find(".", begin)]
            if number == self._number or not (number.isascii() and number.isdigit()):
                break
            if not self._finish():
                return False
            group = self._foretold
            foretold = group.text(stem + number, self.begin) if group else ""
            if group is None or not text.startswith(foretold, self.at):
                break
            if not self._take(stem, number, group, self.begin):
                return False
            self.at += len(foretold)
            self.begin += group.length
        return True

    def _next_tensor(self) -> bool:
        """Take one tensor, which may belong to the expert of the one before."""
        found = _TENSOR.match(self.text, self.at)
        if found is None:
            return False
        name, written, dtype, shape, begin, end = found.groups()
        kind = self._kinds.get(written) or self._kind(written, dtype, shape)
        if kind is None or begin != str(self.begin) or end != str(self.begin + kind.length):
            return False
        expert = _EXPERT.search(name)
        stem = name[: expert.end(1)] if expert else ""
        number = name[expert.end(1) : expert.end()] if expert else ""
        if (stem, number) != (self._stem, self._number) and not self._finish():
            return False
        self.at = found.end()
        if expert is None:
            if name in self._names or name == METADATA:
                return False
            self._names.add(name)
            self.stretches.append(Stretch("", "", Group(((name, written, kind),)), self.begin))
        else:
            self._stem, self._number = stem, number
            self._members.append((name[expert.end() :], written, kind))
        self.begin += kind.length
        return True

    def _kind(self, written: str, dtype: str, shape: str) -> Kind | None:
        try:
            self._kinds[written] = _kind(dtype, json.loads(f"[{shape}]"))
        except ValueError:
            return None
        return self._kinds[written]

    def _finish(self) -> bool:
        """Put the tensors of an expert that were read one by one into a group."""
        if not self._members:
            return True
        members = tuple(self._members)
        self._members.clear()
        group = self._groups.get(members)
        if group is None:
            group = self._groups[members] = Group(members)
        self._foretold = group
        begin = self.begin - group.length
        return len(group.endings) == len(members) and self._take(self._stem, self._number, group, begin)

    def _take(self, stem: str, number: str, group: Group, begin: int) -> bool:
        """Add tensors of an expert; not where it has one of that name already."""
        head = stem + number
        taken = self._endings.get(head)
        if taken is None:
            self._endings[head] = group.endings
        elif taken.isdisjoint(group.endings):
            self._endings[head] = taken = set(taken) if isinstance(taken, frozenset) else taken
            taken |= group.endings
        else:
            return False
        self._number = number
        self.stretches.append(Stretch(stem, number, group, begin))
        return True


def _around(text: str) -> tuple[int, int, dict[str, str]] | None:
    """Where the first tensor's name begins and the last one's offsets end, and the metadata before or after them."""
    entry, end = text.find(_NAME), text.rfind(_OFFSETS)
    if entry < 0 or end < 0:
        return None
    first, last = text.rfind('"', 0, entry) + 1, text.find("]}", end)
    head, tail = text[: first - 1], text[last + 2 :].rstrip(" ")
    if first < 1 or last < 0 or (head != "{" and not head.endswith(",")) or (tail != "}" and not tail.startswith(",")):
        return None
    try:
        before = strict_object("{}" if head == "{" else head[:-1] + "}")
        after = strict_object("{}" if tail == "}" else "{" + tail[1:])
        metadata = metadata_of({**before, **after})
    except (ValueError, RecursionError):
        return None
    # A comma that belongs to nothing, metadata twice, or a tensor in another form.
    if bool(before) != (head != "{") or bool(after) != (tail != "}") or (before and after):
        return None
    return None if (before.keys() | after.keys()) - {METADATA} else (first, last, metadata)


def _kind(dtype: str, shape: list[int]) -> Kind:
    """Raises ValueError for one that no tensor can have."""
    elements = 1
    for size in shape:
        elements = min(elements * size, 1 << 63)
    tensor = tensor_of("", {"dtype": dtype, "shape": shape, "data_offsets": [0, elements * BITS.get(dtype, 8) // 8]})
    return Kind(tensor.dtype, tensor.shape, tensor.end)
