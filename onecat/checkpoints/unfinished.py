"""What a directory lacks because onecat has not finished it yet, which is told once and not file by file."""

from __future__ import annotations

from pathlib import Path

from onecat.checkpoints.pulled import unfinished_pull
from onecat.checkpoints.rewritten import unfinished_rewrite

EXPLAINED = frozenset((
    "missing-file", "no-weights", "missing-shard", "no-index", "missing-index", "missing-head", "missing-tokenizer",
    "no-chat-template", "no-generation-config",
))  # fmt: skip
"""Problems of files that are still to come. What is wrong with those that are there is told all the same."""


def explained(directory: Path) -> frozenset[str]:
    """Codes of problems that a pull or a rewrite, which goes on when its command is given again, will mend."""
    is_unfinished = unfinished_pull(directory) is not None or unfinished_rewrite(directory) is not None
    return EXPLAINED if is_unfinished else frozenset()
