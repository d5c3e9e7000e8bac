"""Signatures and diagnoses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from onecat.observe.patterns import Pattern

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

SCHEMA = "onecat.diagnose/1"
Confidence = Literal["high", "medium", "low"]
# fail: the server does not work. warn: it works, and badly or not for long. info: it frightens and means nothing bad.
Severity = Literal["fail", "warn", "info"]
# cause: what to look at. consequence: a cause explains it. earlier: a later start of the same log got over it.
# harmless: of severity info.
Standing = Literal["cause", "consequence", "earlier", "harmless"]


@dataclass(frozen=True)
class Signature:
    """One pattern of log lines and the cause it stands for.

    patterns: any of them in a line is a hit; `excluded` in the same line undoes it. Named groups can be used in
    `cause`, `fix` and `rule_out` as {name}, less digits at its end (several patterns need several names for one
    value); text between [[ ]] is told only where all its values were captured. sequence: instead of patterns; all in
    this order, of one process where the log tells processes apart, the last at most `within` lines after the first.
    preceded_by: where given, one of these must stand in the line itself or at most 60 lines before. priority: lower is
    nearer to the root, told first. unless: ids of signatures that explain this one; where one of them is found, this
    one is a mere consequence and is left out ("*": any other that is nearer to the root and as severe). engines: the
    versions of the engine that it is told for, where the log tells a version. lookup: a name of observe/lookups.py:
    what another table knows of a captured value is told with it. rule_out: what else it might be, in sentences.
    matches: texts, of one line or several, that it must recognise; not_matches: that it must not.
    Patterns see a line without what stands before the message: timestamps, the name of host, container or process, and
    the head `INFO 11-29 16:59:51 [core.py:10]`.
    """

    id: str
    patterns: tuple[Pattern, ...]
    cause: str
    fix: tuple[str, ...]
    source: tuple[str, ...]
    confidence: Confidence
    severity: Severity = "fail"
    priority: int = 50
    sequence: tuple[Pattern, ...] = ()
    within: int = 0
    excluded: tuple[Pattern, ...] = ()
    preceded_by: tuple[Pattern, ...] = ()
    unless: tuple[str, ...] = ()
    engines: SpecifierSet | None = None
    lookup: str | None = None
    rule_out: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()
    not_matches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Passage:
    """A stretch of a log without meaning for a diagnosis, from a line with `begins` up to the next with `ends`."""

    begins: Pattern
    ends: Pattern


@dataclass(frozen=True)
class SignatureTable:
    """All signatures, and the lines and passages that mean nothing although they look like it."""

    signatures: tuple[Signature, ...]
    benign: tuple[Pattern, ...] = ()
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """One log line. line: its number, counted from 1. file: the log's name, where several are read. matched: the part
    that tells."""

    line: int
    text: str
    file: str | None = None
    matched: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """A cause found in a log."""

    signature: str
    confidence: Confidence
    cause: str
    fix: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    source: tuple[str, ...]
    severity: Severity = "fail"
    rule_out: tuple[str, ...] = ()
    standing: Standing = "cause"


def to_json(diagnoses: Iterable[Diagnosis]) -> dict[str, Any]:
    """The diagnoses as the `onecat.diagnose/1` document."""
    return {"schema": SCHEMA, "diagnoses": [_document(diagnosis) for diagnosis in diagnoses]}


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    evidence = [
        {"line": each.line, "text": each.text, **({} if each.file is None else {"file": each.file})}
        for each in diagnosis.evidence
    ]
    return {**asdict(diagnosis), "evidence": evidence}
