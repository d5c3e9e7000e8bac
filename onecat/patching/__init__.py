"""Applies a pinned series of patches to the source of an engine, and takes it back.

In: a series under patches/ and an unpacked source tree, or the engine's installed Python files. Out: the changed tree,
or per patch whether it is applied, applies, applies with an offset, or conflicts and where.

Doorways of their own, for who maintains a series and for what is shown of it: `authoring` (new patches, patches written
anew), `rebase` (another release), `report` and `writing` (conflicts and hunks as text).
"""

from onecat.patching.archive import read_members, unpack, unpack_as, wrong_hash
from onecat.patching.series import (
    AppliesTo,
    Guard,
    Patch,
    Series,
    Upstream,
    list_series,
    load_series,
)
from onecat.patching.states import PatchState, State
from onecat.patching.tree import (
    Outcome,
    TreeStatus,
    apply,
    patched_files,
    read_record,
    reverse,
    source_release,
    touched_paths,
    tree_status,
    verify,
)

__all__ = [
    "AppliesTo",
    "Guard",
    "Outcome",
    "Patch",
    "PatchState",
    "Series",
    "State",
    "TreeStatus",
    "Upstream",
    "apply",
    "list_series",
    "load_series",
    "patched_files",
    "read_members",
    "read_record",
    "reverse",
    "source_release",
    "touched_paths",
    "tree_status",
    "unpack",
    "unpack_as",
    "verify",
    "wrong_hash",
]
