"""The record of what was applied to a tree: the files as they were and as they became. The tree itself decides."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from onecat.errors import ExitCode, OnecatError
from onecat.patching.source import RECORD, SourceFile, check_path

SCHEMA = "onecat.applied/1"


@dataclass(frozen=True)
class Seen:
    """A file's SHA-256 in hex and its permission bits."""

    sha256: str
    mode: int

    @staticmethod
    def of(file: SourceFile) -> Seen:
        return Seen(hashlib.sha256(file.content).hexdigest(), file.mode)


@dataclass(frozen=True)
class Record:
    """What was applied.

    series: its name. digest: Series.digest. patches: the files of the patches. fuzz: lines of context that could
    differ. before, after: each changed file; None where it was or is not there. directories: those that were made.
    """

    series: str
    digest: str
    patches: tuple[str, ...]
    fuzz: int
    before: dict[str, Seen | None]
    after: dict[str, Seen | None]
    directories: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """The record as the file at the root of the tree has it."""
        return (json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, sort_keys=True) + "\n").encode()


def parse_record(content: bytes, where: str) -> Record:
    """The record that a tree has. Raises OnecatError (exit code 5) when it is damaged."""
    try:
        row = json.loads(content)
        if row["schema"] != SCHEMA:
            raise ValueError(f"schema {row['schema']}")
        return Record(
            str(row["series"]),
            str(row["digest"]),
            tuple(row["patches"]),
            int(row["fuzz"]),
            _seen(row["before"]),
            _seen(row["after"]),
            tuple(check_path(path, where) for path in row["directories"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OnecatError) as error:
        raise OnecatError(
            "the record of what was applied to this tree is damaged",
            expected=SCHEMA,
            where=where,
            details=[error.found if isinstance(error, OnecatError) else f"{type(error).__name__}: {error}"],
            next_steps=[f"remove {RECORD} there: the state is then told from the files alone"],
            code=ExitCode.NEEDS_PERSON,
        ) from error


def _seen(rows: dict[str, Any]) -> dict[str, Seen | None]:
    return {path: None if row is None else Seen(str(row["sha256"]), int(row["mode"])) for path, row in rows.items()}
