"""What `onecat model pull` keeps in a model directory: a record that says whether all files are in their place.

`onecat.pull` writes DIRECTORY/.onecat-pull/state.json; this room only reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onecat.files import read_json

STATE_DIRECTORY, STATE_FILE = ".onecat-pull", "state.json"
STATE_SCHEMA = "onecat.pull-state/1"
RESUME_PULL = "type the same `onecat model pull` again: it goes on where it stopped"


@dataclass(frozen=True)
class UnfinishedPull:
    """A directory that is not whole yet. source: what it is pulled from, without secrets."""

    source: str


def unfinished_pull(directory: Path) -> UnfinishedPull | None:
    """What a directory is still being made from; None where every pull has come to its end, or none ever was."""
    try:
        document = read_json(directory / STATE_DIRECTORY / STATE_FILE)
    except (ValueError, OSError):
        return None
    if (
        not isinstance(document, dict)
        or document.get("schema") != STATE_SCHEMA
        or document.get("complete") is not False
    ):
        return None
    return UnfinishedPull(str(document.get("source") or "?"))
