"""Reads facts back from a file."""

from __future__ import annotations

import json
from pathlib import Path

from onecat.errors import OnecatError
from onecat.facts import SCHEMA, Facts, from_json


def read_facts(file: Path) -> Facts:
    """The facts in a file that `onecat facts --json` wrote. Raises OnecatError when it is anything else."""
    expected = f"a document of schema {SCHEMA}, as `onecat facts --json` writes it; raw captures cannot be read yet"
    steps = ["on the host: onecat facts --json > facts.json"]
    try:
        return from_json(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise OnecatError("the file of saved facts does not exist", where=str(file), next_steps=steps) from error
    except (ValueError, AttributeError) as error:
        raise OnecatError(
            f"this is not a file of saved facts: {error}", where=str(file), expected=expected, next_steps=steps
        ) from error
