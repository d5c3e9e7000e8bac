"""Directories in which onecat has not finished a checkpoint that it writes."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.integrity.contents import Contents
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.registry import rule
from onecat.checkpoints.rewritten import RESUME_REWRITE, REWRITE_DIRECTORY, unfinished_rewrite


@rule
def rewritten(contents: Contents) -> Iterator[Fault]:
    """No conversion is under way, or was broken off."""
    found = unfinished_rewrite(contents.directory)
    if found is not None:
        yield Fault(
            "incomplete-rewrite",
            "fail",
            f"the checkpoint that is made here from {found.source} has not come to its end",
            REWRITE_DIRECTORY,
            RESUME_REWRITE,
            "Files are missing.",
        )
