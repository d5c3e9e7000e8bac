"""A fast way through headers in the very form that the safetensors library writes, tensor after tensor.

Some checkpoints have hundreds of thousands of tensors in a few dozen shapes. Names and shapes are cut out as columns of
text; the offsets follow from them, and the header is one of this form when the text that it would then have is its
own. Nothing is parsed for each tensor, and no object is made of it before someone asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import eq, index
from typing import Any, NamedTuple, overload

from onecat.checkpoints.safetensors_json import MAXIMUM_NUMBER, METADATA, metadata_of, strict_object, tensor_of
from onecat.checkpoints.safetensors_records import BITS, Tensor

_NAME, _OFFSETS, _NEXT = '":{"dtype":"', '],"data_offsets":[', ']},"'
_KIND = re.compile(r'([A-Z0-9_]+)","shape":\[([0-9,]*)')
_NOT_PLAIN = bytes([*range(32), *b'"\\'])
"""Bytes that JSON text has only escaped, or that end it."""

_MAKE = partial(tuple.__new__, Tensor)
"""Tensor._make in a third of its time."""


class Kind(NamedTuple):
    """What tensors alike have in common; length in bytes."""

    dtype: str
    shape: tuple[int, ...]
    length: int


class Columns(Sequence[Tensor]):
    """Tensors in file order, each made when it is asked for.

    names: of all tensors; kinds: of each as the header writes it, which `table` explains; ends: offsets in bytes.
    """

    __slots__ = ("ends", "kinds", "names", "table")

    def __init__(self, names: list[str], kinds: list[str], table: Mapping[str, Kind], ends: list[int]) -> None:
        self.names, self.kinds, self.table, self.ends = names, kinds, table, ends

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Columns:
        """The same for tensors of a header in another form."""
        names, kinds, ends = [], [], []
        table: dict[str, Kind] = {}
        for name, dtype, shape, begin, end in tensors:
            kind = f'{dtype}","shape":[{",".join(map(str, shape))}'
            table.setdefault(kind, Kind(dtype, shape, end - begin))
            names.append(name)
            kinds.append(kind)
            ends.append(end)
        return cls(names, kinds, table, ends)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Tensor]:
        kinds = [self.table[kind] for kind in self.kinds]
        rows = zip(
            self.names,
            (kind.dtype for kind in kinds),
            (kind.shape for kind in kinds),
            [0, *self.ends],
            self.ends,
            strict=False,
        )
        return map(_MAKE, rows)

    @overload
    def __getitem__(self, at: int) -> Tensor: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Tensor]: ...

    def __getitem__(self, at: int | slice) -> Tensor | Sequence[Tensor]:
        if isinstance(at, slice):
            return tuple(self)[at]
        at = range(len(self))[index(at)]
        kind = self.table[self.kinds[at]]
        return Tensor(self.names[at], kind.dtype, kind.shape, self.ends[at] - kind.length, self.ends[at])

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


def from_columns(text: str) -> tuple[Columns, dict[str, str]] | None:
    """What `from_json` gives; None for a header in another form and at any doubt about it."""
    found = _around(text)
    if found is None:
        return None
    first, last, metadata = found
    body = text[first:last]
    parts = body.replace(_NAME, "\0").replace(_OFFSETS, "\0").replace(_NEXT, "\0").split("\0")
    names, kinds = parts[0::3], parts[1::3]
    distinct = set(names)
    written = "".join(names).encode("utf-8", "surrogatepass")
    if len(parts) % 3 or len(distinct) != len(names) or METADATA in distinct:
        return None
    if len(written.translate(None, _NOT_PLAIN)) != len(written):
        return None
    table = _table(kinds)
    if table is None:
        return None
    ends = list(accumulate([table[kind].length for kind in kinds]))
    if ends[-1] > MAXIMUM_NUMBER or _text(names, kinds, ends) != body:
        return None
    return Columns(names, kinds, table, ends), metadata


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


def _table(kinds: Iterable[str]) -> dict[str, Kind] | None:
    table = {}
    for kind in set(kinds):
        if (found := _KIND.fullmatch(kind)) is None:
            return None
        try:
            table[kind] = _kind(found[1], json.loads(f"[{found[2]}]"))
        except ValueError:
            return None
    return table


def _kind(dtype: str, shape: list[int]) -> Kind:
    """Raises ValueError for one that no tensor can have."""
    elements = 1
    for size in shape:
        elements = min(elements * size, 1 << 63)
    tensor = tensor_of("", {"dtype": dtype, "shape": shape, "data_offsets": [0, elements * BITS.get(dtype, 8) // 8]})
    return Kind(tensor.dtype, tensor.shape, tensor.end)


def _text(names: list[str], kinds: list[str], ends: list[int]) -> str:
    """The text that the tensors have in a header when each begins where the one before it ends."""
    told = list(map(str, ends))
    count = len(names)
    parts = [_NEXT] * (8 * count)
    parts[0::8], parts[1::8], parts[2::8], parts[3::8] = names, [_NAME] * count, kinds, [_OFFSETS] * count
    parts[4::8], parts[5::8], parts[6::8] = ["0", *told[:-1]], [","] * count, told
    parts.pop()
    return "".join(parts)
