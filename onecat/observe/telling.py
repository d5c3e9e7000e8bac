"""From what was found in a log to what is told: ranks, consequences, evidence, words filled in. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from onecat.observe.lines import LogLine
from onecat.observe.lookups import LOOKUPS, Known
from onecat.observe.moments import moment
from onecat.observe.patterns import Match
from onecat.observe.records import Diagnosis, Evidence, Standing
from onecat.observe.runs import Found
from onecat.observe.secrets import without_secrets
from onecat.observe.tracebacks import Chain

_LONGEST_EVIDENCE = 400
_BEFORE_MATCH = 120
_LONGEST_VALUE = 400
_CONTEXT = 4096
"""Characters around a match in which secrets are looked for: the name of a secret may stand before what is told."""
_SEVERITIES = ("info", "warn", "fail")
# A cause may be written shortly after what it causes, as workers' tracebacks come after the executor's word that they
# died, and not long before: PyTorch's watchdogs wait at most 30 min for a process that is gone.
# https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
_LATEST_CAUSE_SECONDS = 60
_EARLIEST_CAUSE_SECONDS = 3600
_LATEST_CAUSE_LINES = 1000
_OPTIONAL = re.compile(r"\[\[(.*?)\]\]")
_PLACE = re.compile(r"\{(\w+)\}")


def ranked(found: Iterable[Found]) -> list[Found]:
    """Nearest to the root first: what fails before what warns, then by priority, then as the log has it."""
    return sorted(
        found,
        key=lambda each: (-_SEVERITIES.index(each.signature.severity), each.signature.priority, each.order),
    )


def explained(found: Found, present: Iterable[Found]) -> bool:
    """Whether something else that was found is the cause of this."""
    return any(_explains(other, found) for other in present if other is not found)


def _explains(cause: Found, effect: Found) -> bool:
    one, other = cause.signature, effect.signature
    named = one.id in other.unless
    nearer = one.priority < other.priority and _SEVERITIES.index(one.severity) >= _SEVERITIES.index(other.severity)
    if not named and not ("*" in other.unless and nearer):
        return False
    return _in_time(cause, effect)


def _in_time(cause: Found, effect: Found) -> bool:
    """Whether the first hit of a cause is near enough before that of an effect."""
    began, ended = moment(cause.at.time), moment(effect.at.time)
    seconds = None if ended is None else ended.minus(began)
    if seconds is not None:
        return -_LATEST_CAUSE_SECONDS <= seconds <= _EARLIEST_CAUSE_SECONDS
    return cause.file != effect.file or cause.at.number <= effect.at.number + _LATEST_CAUSE_LINES


def tell(found: Found, standing: Standing, chain: Chain | None = None) -> Diagnosis:
    """A diagnosis from the hits of a signature.

    Parameters:
        chain: the exceptions in whose tracebacks the first hit stands: the evidence names the line of its own one, and
            of the first one, from which it was raised.
    """
    signature = found.signature
    values: dict[str, str] = {}
    for each in reversed(found.values):
        values.update(each)
    known = Known({}) if signature.lookup is None else LOOKUPS[signature.lookup](values)
    values.update(known.values)
    evidence = list(found.evidence)
    if chain is not None:
        own = chain.holding(found.at.number)
        for line in (None if own is None else own.line, chain.root):
            if line is not None and line.number not in [each.line for each in evidence]:
                evidence.append(evidence_of(line, found.file))
        evidence.sort(key=lambda each: each.line)
    return Diagnosis(
        signature=signature.id,
        confidence=signature.confidence,
        cause=_fill(signature.cause, values),
        fix=tuple(_fill(step, values) for step in signature.fix) + known.fix,
        evidence=tuple(evidence),
        source=tuple(dict.fromkeys((*signature.source, *known.source))),
        severity=signature.severity,
        rule_out=tuple(_fill(each, values) for each in signature.rule_out),
        standing=standing,
    )


def values_of(match: Match, text: str) -> dict[str, str]:
    """What the named groups of a match captured, without secrets, each of at most 400 characters.

    Parameters:
        text: in which it was found.
    """
    if not any(match.groupdict().values()):
        return {}
    begin, end = match.span()
    around = text[max(0, begin - _CONTEXT) : min(end, begin + _CONTEXT) + _CONTEXT]
    safe = without_secrets(around)
    again = match.re.search(safe) if safe != around else None
    values = (match if again is None else again).groupdict()
    return {name.rstrip("0123456789"): _short(without_secrets(value)) for name, value in values.items() if value}


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 3] + "..."


def evidence_of(line: LogLine, file: str | None, matched: str = "") -> Evidence:
    """A line as evidence, without secrets; of a long one the part around what matched, of a progress bar its step."""
    text = line.plain
    position = max(0, text.find(matched)) if matched else 0
    begin = text.rfind("\r", 0, position) + 1
    end = text.find("\r", position + len(matched))
    text, position = text[begin : len(text) if end < 0 else end], position - begin
    start = max(0, position - _CONTEXT)
    is_cut = start > 0, position + 2 * _CONTEXT < len(text)
    text, position = text[start : position + 2 * _CONTEXT], position - start
    matched = matched[:_LONGEST_EVIDENCE]
    safe = without_secrets(text)
    if safe != text:
        text, position, matched = safe, len(without_secrets(text[:position])), without_secrets(matched)
    if len(text) > _LONGEST_EVIDENCE:
        start = max(0, min(position - _BEFORE_MATCH, len(text) - _LONGEST_EVIDENCE))
        rest = text[start : start + _LONGEST_EVIDENCE]
        is_cut = start > 0 or is_cut[0], start + len(rest) < len(text) or is_cut[1]
        text = rest
    text = ("..." if is_cut[0] else "") + text.strip() + ("..." if is_cut[1] else "")
    matched = matched.strip()
    return Evidence(line.number, text, file, matched if matched and matched in text else None)


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Put captured values into {name} places; [[ ]] around words leaves them out where a value of theirs is missing.

    Other braces (JSON in a command) stay as they are.
    """
    text = _OPTIONAL.sub(lambda part: part[1] if all(name in values for name in _PLACE.findall(part[1])) else "", text)
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)
