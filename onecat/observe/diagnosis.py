"""From log lines to causes: a pure function over the table of signatures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from onecat.observe.patterns import Match, Pattern
from onecat.observe.prefilter import candidates
from onecat.observe.records import Diagnosis, Evidence, Passage, Signature, SignatureTable
from onecat.observe.signatures import load_signatures

_MOST_EVIDENCE = 5
_LONGEST_EVIDENCE = 400
_PRECEDING_LINES = 60
_PASSAGES = "passages"
# Docker's and the supervisor's timestamps, journald's and vLLM's process prefixes stand before the text proper.
_TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) ")
# The files of Docker's json-file driver: https://docs.docker.com/engine/logging/drivers/json-file/
_JSON = re.compile(r'^\{"log":"')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OPTIONAL = re.compile(r"\[\[(.*?)\]\]")
_PLACE = re.compile(r"\{(\w+)\}")


def plain(line: str) -> str:
    """A log line without what a container engine or the supervisor put around it, and without colours."""
    line = line.rstrip("\r\n")
    if _JSON.match(line):
        line = _from_json(line).rstrip("\r\n")
    return _TIMESTAMP.sub("", _COLOUR.sub("", line), count=1)


def _from_json(line: str) -> str:
    """The text in a line of Docker's json-file driver; the line itself where it is cut off."""
    try:
        text = json.loads(line)["log"]
    except ValueError:
        return line
    return text if isinstance(text, str) else line


def diagnose(lines: Iterable[str], table: SignatureTable | None = None) -> tuple[Diagnosis, ...]:
    """The causes that the lines of a log point to, nearest to the root first.

    Parameters:
        lines: the log, in order, with or without timestamps before each line. It is read as it comes and not kept.
        table: the signatures; onecat's own by default.
    """
    table = load_signatures() if table is None else table
    signatures = {signature.id: signature for signature in table.signatures}
    found: dict[str, list[tuple[Evidence, Match]]] = {}
    preceded: dict[str, int] = {}
    finished: set[str] = set()
    passage: Passage | None = None
    for number, line, names in candidates(lines, _patterns(table), plain, finished):
        if passage is not None and passage.ends.search(line):
            passage = None
        if passage is None:
            passage = next((candidate for candidate in table.passages if candidate.begins.search(line)), None)
        if passage is not None:
            continue
        for name in names - finished - {_PASSAGES}:
            signature = signatures[name]
            if any(pattern.search(line) for pattern in signature.preceded_by):
                preceded[name] = number
            if signature.preceded_by and number - preceded.get(name, -_PRECEDING_LINES) > _PRECEDING_LINES:
                continue
            match = _hit(signature, line)
            if match is None:
                continue
            if any(pattern.search(line) for pattern in table.benign):
                break
            hits = found.setdefault(name, [])
            hits.append((Evidence(number, line.strip()[:_LONGEST_EVIDENCE]), match))
            if len(hits) == _MOST_EVIDENCE:
                finished.add(name)
    present = [signature for signature in table.signatures if signature.id in found]
    told = [signature for signature in present if not _explained(signature, present)]
    told.sort(key=lambda signature: (signature.priority, found[signature.id][0][0].line))
    return tuple(_diagnosis(signature, found[signature.id]) for signature in told)


def _patterns(table: SignatureTable) -> Iterator[tuple[str, Pattern]]:
    for passage in table.passages:
        yield _PASSAGES, passage.begins
        yield _PASSAGES, passage.ends
    for signature in table.signatures:
        for pattern in (*signature.patterns, *signature.preceded_by):
            yield signature.id, pattern


def _hit(signature: Signature, line: str) -> Match | None:
    for pattern in signature.patterns:
        match = pattern.search(line)
        if match is not None:
            return None if any(excluded.search(line) for excluded in signature.excluded) else match
    return None


def _explained(signature: Signature, present: Iterable[Signature]) -> bool:
    if "*" in signature.unless:
        return any(other.priority < signature.priority for other in present)
    return any(other.id in signature.unless for other in present)


def _diagnosis(signature: Signature, hits: list[tuple[Evidence, Match]]) -> Diagnosis:
    values: dict[str, str] = {}
    for _, match in reversed(hits):
        values.update({name.rstrip("0123456789"): value for name, value in match.groupdict().items() if value})
    return Diagnosis(
        signature=signature.id,
        confidence=signature.confidence,
        cause=_fill(signature.cause, values),
        fix=tuple(_fill(step, values) for step in signature.fix),
        evidence=tuple(evidence for evidence, _ in hits),
        source=signature.source,
        severity=signature.severity,
        rule_out=tuple(_fill(each, values) for each in signature.rule_out),
    )


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Put captured values into {name} places; [[ ]] around words leaves them out where a value of theirs is missing.

    Other braces (JSON in a command) stay as they are.
    """
    text = _OPTIONAL.sub(lambda part: part[1] if all(name in values for name in _PLACE.findall(part[1])) else "", text)
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)
