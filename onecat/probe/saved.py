"""Reads facts back from a file."""

from __future__ import annotations

import json
from pathlib import Path

from onecat import __version__
from onecat.errors import OnecatError
from onecat.facts import SCHEMA, Facts, from_json


def read_facts(file: Path) -> Facts:
    """The facts in a file that `onecat facts --json` wrote. Raises OnecatError when it is anything else."""
    expected = f"a document of schema {SCHEMA}, as `onecat facts --json` writes it; raw captures cannot be read yet"
    steps = ["on the host: onecat facts --json > facts.json"]
    try:
        # Given bytes, it takes also what PowerShell writes: UTF-16, and UTF-8 with a byte order mark.
        document = json.loads(file.read_bytes())
        if not isinstance(document, dict):
            raise ValueError(f"it holds {type(document).__name__} and no object")
        schema = document.get("schema")
        if schema != SCHEMA and str(schema).startswith(SCHEMA.partition("/")[0] + "/"):
            steps = ["update onecat on this machine", f"or write them anew with onecat {__version__}", *steps]
        return from_json(document)
    except FileNotFoundError as error:
        raise OnecatError("the file of saved facts does not exist", where=str(file), next_steps=steps) from error
    except OSError as error:
        raise OnecatError(f"the saved facts cannot be read: {error.strerror}", where=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise OnecatError(
            f"this is not a file of saved facts: {error}", where=str(file), expected=expected, next_steps=steps
        ) from error
