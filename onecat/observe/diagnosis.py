"""From log lines to causes: a pure function over the table of signatures."""

from __future__ import annotations

import re
from collections.abc import Iterable

from onecat.observe.records import Diagnosis, Evidence, Passage, Signature, SignatureTable
from onecat.observe.signatures import load_signatures

_MOST_EVIDENCE = 5
_LONGEST_EVIDENCE = 400
# Docker's and the supervisor's timestamps, journald's and vLLM's process prefixes stand before the text proper.
_TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def plain(line: str) -> str:
    """A log line without the timestamp that a container engine or the supervisor put before it, and without colours."""
    return _TIMESTAMP.sub("", _COLOUR.sub("", line.rstrip("\r\n")), count=1)


def diagnose(lines: Iterable[str], table: SignatureTable | None = None) -> tuple[Diagnosis, ...]:
    """The causes that the lines of a log point to, nearest to the root first.

    Parameters:
        lines: the log, in order, with or without timestamps before each line.
        table: the signatures; onecat's own by default.
    """
    table = load_signatures() if table is None else table
    found: dict[str, list[tuple[Evidence, re.Match[str]]]] = {}
    passage: Passage | None = None
    for number, raw in enumerate(lines, start=1):
        line = plain(raw)
        if passage is not None and passage.ends.search(line):
            passage = None
        if passage is None:
            passage = next((candidate for candidate in table.passages if candidate.begins.search(line)), None)
        if passage is not None or any(pattern.search(line) for pattern in table.benign):
            continue
        for signature in table.signatures:
            match = _hit(signature, line)
            if match is not None:
                found.setdefault(signature.id, []).append((Evidence(number, line.strip()[:_LONGEST_EVIDENCE]), match))
    hits = [signature for signature in table.signatures if signature.id in found and not _explained(signature, found)]
    hits.sort(key=lambda signature: (signature.priority, found[signature.id][0][0].line))
    return tuple(_diagnosis(signature, found[signature.id]) for signature in hits)


def _hit(signature: Signature, line: str) -> re.Match[str] | None:
    for pattern in signature.patterns:
        match = pattern.search(line)
        if match is not None:
            return None if any(excluded.search(line) for excluded in signature.excluded) else match
    return None


def _explained(signature: Signature, found: Iterable[str]) -> bool:
    others = {other for other in found if other != signature.id}
    return bool(others) if "*" in signature.unless else bool(others.intersection(signature.unless))


def _diagnosis(signature: Signature, hits: list[tuple[Evidence, re.Match[str]]]) -> Diagnosis:
    values = {name: value or "?" for name, value in hits[0][1].groupdict().items()}
    return Diagnosis(
        signature=signature.id,
        confidence=signature.confidence,
        cause=_fill(signature.cause, values),
        fix=tuple(_fill(step, values) for step in signature.fix),
        evidence=tuple(evidence for evidence, _ in hits[:_MOST_EVIDENCE]),
        source=signature.source,
    )


def _fill(text: str, values: dict[str, str]) -> str:
    """Put captured values into {name} places; other braces (JSON in a command) stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda place: values.get(place[1], place[0]), text)
