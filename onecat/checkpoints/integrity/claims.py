"""What configuration and tensors say against each other, as `inspect` tells it, among the faults of a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from onecat.checkpoints.inspection import inspect
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.records import Checkpoint

ALSO_TOLD_AS = {
    "tied-head-stored": "head-beside-tied",
    "missing-scales": "missing-scale",
    "headers-only": "truncated",
    "group-size-differs": "scale-shape",
    "block-differs": "scale-shape",
}
"""Codes of `inspect` and the fault that says the same with the file and its tensors. Of scales that fit no size at all,
`inspect` tells the size that comes nearest."""

SOURCE = "https://huggingface.co/docs/transformers/main_classes/configuration"


def faults_of_claims(directory: Path, told: Iterable[Fault]) -> Iterator[Fault]:
    """The problems of `inspect` that no fault tells already, as faults.

    Raises OnecatError when the directory cannot be read.
    """
    yield from untold(inspect(directory), directory, {fault.code for fault in told})


def untold(checkpoint: Checkpoint, directory: Path, told: set[str]) -> Iterator[Fault]:
    """Problems of a checkpoint whose codes are not among `told`, as faults; `where` is below the directory."""
    for each in checkpoint.problems:
        if not told & {each.code, ALSO_TOLD_AS.get(each.code, each.code)}:
            inside = each.where.startswith(f"{directory}{os.sep}")
            where = os.path.relpath(each.where, directory) if inside else each.where
            yield Fault(each.code, each.severity, each.text, where, each.fix, source=SOURCE)
