"""Signatures and diagnoses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

SCHEMA = "onecat.diagnose/1"
Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Signature:
    """One pattern of log lines and the cause it stands for.

    patterns: any of them in a line is a hit; `excluded` in the same line undoes it. Named groups can be used in
    `cause` and `fix` as {name}, less digits at its end (several patterns need several names for one value); text
    between [[ ]] is told only where all its values were captured. preceded_by: where given, one of these must stand
    in the line itself or at most 60 lines before. priority: lower is nearer to the root, told first. unless: ids of
    signatures that explain this one; where one of them is found, this one is a mere consequence and is left out
    ("*": any other that is nearer to the root).
    """

    id: str
    patterns: tuple[re.Pattern[str], ...]
    cause: str
    fix: tuple[str, ...]
    source: tuple[str, ...]
    confidence: Confidence
    priority: int = 50
    excluded: tuple[re.Pattern[str], ...] = ()
    preceded_by: tuple[re.Pattern[str], ...] = ()
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class Passage:
    """A stretch of a log without meaning for a diagnosis, from a line with `begins` up to the next with `ends`."""

    begins: re.Pattern[str]
    ends: re.Pattern[str]


@dataclass(frozen=True)
class SignatureTable:
    """All signatures, and the lines and passages that mean nothing although they look like it."""

    signatures: tuple[Signature, ...]
    benign: tuple[re.Pattern[str], ...] = ()
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """One log line. line: its number, counted from 1."""

    line: int
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """A cause found in a log."""

    signature: str
    confidence: Confidence
    cause: str
    fix: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    source: tuple[str, ...]


def to_json(diagnoses: Iterable[Diagnosis]) -> dict[str, Any]:
    """The diagnoses as the `onecat.diagnose/1` document."""
    return {"schema": SCHEMA, "diagnoses": [asdict(diagnosis) for diagnosis in diagnoses]}
