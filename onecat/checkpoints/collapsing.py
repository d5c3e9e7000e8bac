"""Tensors that differ only in the number of their expert, as one row each.

A mixture of experts has a hundred thousand tensors and more in a few thousand rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from onecat.checkpoints.safetensors_groups import Stretches
from onecat.checkpoints.safetensors_records import Header
from onecat.checkpoints.tensors import StoredTensors

_EXPERT = re.compile(r"\.experts\.[0-9]+(?=\.|\Z)")
_COLLAPSED = ".experts.*"

Alike = tuple[str, str, tuple[int, ...], int]
"""Name, type, shape and bytes of a tensor, and of those alike."""


def collapsed(headers: Iterable[Header]) -> tuple[StoredTensors, ...]:
    """All tensors of some weight files, in the order of their names' first mention; experts alike are one row.

    Experts of another shape or type are another row of the same name. Takes headers one at a time, so that they need
    not be in memory together.
    """
    counts: Counter[Alike] = Counter()
    for header in headers:
        if isinstance(header.tensors, Stretches):
            for alike, count in _of_stretches(header.tensors):
                counts[alike] += count
        else:
            counts.update(
                (_EXPERT.sub(_COLLAPSED, name), dtype, shape, end - begin)
                for name, dtype, shape, begin, end in header.tensors
            )
    return tuple(
        StoredTensors(name, dtype, shape, count, length * count)
        for (name, dtype, shape, length), count in counts.items()
    )


def _of_stretches(tensors: Stretches) -> Iterator[tuple[Alike, int]]:
    for (stem, group), count in Counter((each.stem, each.group) for each in tensors.stretches).items():
        for ending, (dtype, shape, length) in group.members:
            yield (_EXPERT.sub(_COLLAPSED, f"{stem}*{ending}" if stem else ending), dtype, shape, length), count
