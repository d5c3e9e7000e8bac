"""What onecat keeps in a directory while it writes a checkpoint there (`model convert`, `model dequantize`, ...).

`onecat.nvfp4.rewriting` writes DIRECTORY/.onecat-rewrite/state.json and removes it at the end; this room only reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onecat.files import read_json

REWRITE_DIRECTORY, REWRITE_FILE = ".onecat-rewrite", "state.json"
REWRITE_SCHEMA = "onecat.rewrite-state/1"
RESUME_REWRITE = "type the same `onecat model` command again: it goes on where it stopped"


@dataclass(frozen=True)
class UnfinishedRewrite:
    """A directory that is not whole yet. source: the directory that it is made from."""

    source: str


def unfinished_rewrite(directory: Path) -> UnfinishedRewrite | None:
    """What a directory is still being made from; None where nothing is being made.

    A record that cannot be read counts: onecat removes it before it calls a directory finished.
    """
    try:
        document = read_json(directory / REWRITE_DIRECTORY / REWRITE_FILE)
    except ValueError:
        return UnfinishedRewrite("?")
    except OSError:
        return None
    if document is None:
        return None
    source = document.get("source") if isinstance(document, dict) else None
    return UnfinishedRewrite(str(source or "?"))
