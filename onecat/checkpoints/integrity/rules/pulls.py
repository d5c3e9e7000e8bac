"""Directories that `onecat model pull` has not finished."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.integrity.contents import Contents
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.registry import rule
from onecat.checkpoints.pulled import RESUME_PULL, STATE_DIRECTORY, unfinished_pull


@rule
def pulled(contents: Contents) -> Iterator[Fault]:
    """No pull is under way, or was broken off."""
    found = unfinished_pull(contents.directory)
    if found is not None:
        yield Fault(
            "incomplete-download",
            "fail",
            f"the download from {found.source} has not come to its end",
            STATE_DIRECTORY,
            RESUME_PULL,
            "Files are missing.",
        )
