"""Applies a pinned series of patches to the source of an engine, and takes it back.

In: a series under patches/ and an unpacked source tree, or the engine's installed Python files. Out: the changed tree,
or per patch whether it is applied, applies, applies with an offset, or conflicts and where.
"""

from onecat.patching.series import (
    AppliesTo,
    Guard,
    Patch,
    Series,
    Upstream,
    list_series,
    load_series,
)

__all__ = [
    "AppliesTo",
    "Guard",
    "Patch",
    "Series",
    "Upstream",
    "list_series",
    "load_series",
]
