"""A checkpoint of which only the configuration is here: to know what fits before anything is downloaded. Pure."""

from __future__ import annotations

from dataclasses import replace

from onecat.checkpoints import Checkpoint

ABSENT = frozenset(("missing-tokenizer", "missing-shard", "no-weights", "incomplete-download", "incomplete-rewrite"))
"""Problems that say that a file is not here."""


def without_absent_files(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint without the problems that its absent files are."""
    rest = tuple(each for each in checkpoint.problems if each.code not in ABSENT)
    return replace(checkpoint, problems=rest)
