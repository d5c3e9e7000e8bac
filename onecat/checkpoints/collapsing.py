"""Tensors that differ only in the number of their expert, as one row each.

A mixture of experts has a hundred thousand tensors and more in a few thousand rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from onecat.checkpoints.safetensors_columns import Columns, Kind
from onecat.checkpoints.safetensors_records import Header
from onecat.checkpoints.tensors import StoredTensors

_EXPERT = re.compile(r"\.experts\.[0-9]+(?=[.\n]|\Z)")
"""Begins with letters, which `re` looks for at the speed of C; a look-behind would be tried at every character."""
_COLLAPSED = ".experts.*"


def collapsed(headers: Iterable[Header]) -> tuple[StoredTensors, ...]:
    """All tensors of some weight files, in the order of their names' first mention; experts alike are one row.

    Experts of another shape or type are another row of the same name. Takes headers one at a time, so that they need
    not be in memory together.
    """
    counts: Counter[tuple[str, str]] = Counter()
    kinds: dict[str, Kind] = {}
    for header in headers:
        columns = header.tensors if isinstance(header.tensors, Columns) else Columns.of(header.tensors)
        kinds.update(columns.table)
        counts.update(zip(_without_numbers(columns.names), columns.kinds, strict=True))
    return tuple(
        StoredTensors(name, kinds[kind].dtype, kinds[kind].shape, count, kinds[kind].length * count)
        for (name, kind), count in counts.items()
    )


def _without_numbers(names: list[str]) -> list[str]:
    """The names with `*` for the number of the expert; all at once, which takes a third of the time."""
    joined = _EXPERT.sub(_COLLAPSED, "\n".join(names)).split("\n")
    return joined if len(joined) == len(names) else [_EXPERT.sub(_COLLAPSED, name) for name in names]
