"""Diagnoses of logs as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onecat.render import columns
from onecat.render.text import Line, fix_lines, wrapped_lines

if TYPE_CHECKING:
    from onecat.observe import Diagnosis, Evidence, Standing

STYLES = {"fail": "bold red", "warn": "bold yellow", "info": "cyan"}
_HEADINGS: Mapping[Standing, str] = {
    "consequence": "Consequences of that:",
    "earlier": "Earlier starts in this log failed by this; a later start got over it:",
    "harmless": "Looks bad and is harmless:",
}
_COUNTED: Mapping[Standing, tuple[str, str]] = {
    "consequence": ("consequence", "consequences"),
    "earlier": ("cause that an earlier start failed by", "causes that earlier starts failed by"),
    "harmless": ("message that looks bad and is harmless", "messages that look bad and are harmless"),
}
_INDENT = 6
_EVIDENCE_LINES = 3


def diagnosis_lines(
    shown: Sequence[Diagnosis],
    hidden: Mapping[Standing, int],
    exception: Evidence | None,
    *,
    is_empty: bool = False,
    width: int = 80,
) -> Iterator[Line]:
    """The diagnoses in their order, causes first.

    Parameters:
        hidden: how many others there are, by their standing.
        exception: the first one of the log, where no cause is known. is_empty: whether the log has no byte.
    """
    if not any(each.standing == "cause" for each in shown):
        yield from wrapped_lines(_nothing(hidden, is_empty), width, "", "  ")
        if exception is not None:
            yield Line("the exception that came first:")
            yield from evidence_lines(exception, width)
    standing: Standing = "cause"
    for number, diagnosis in enumerate(shown):
        if number > 0 or diagnosis.standing != "cause":
            yield Line("")
        if diagnosis.standing != standing:
            standing = diagnosis.standing
            yield Line(_HEADINGS[standing], "bold", len(_HEADINGS[standing]))
        yield from _diagnosis(diagnosis, width)
    if hidden:
        told = [f"{count} {_COUNTED[each][count > 1]}" for each, count in hidden.items()]
        yield Line("")
        yield from wrapped_lines(f"Not shown: {', '.join(told)}; --all shows them", width, "", "  ")


def _nothing(hidden: Mapping[Standing, int], is_empty: bool) -> str:
    if is_empty:
        return "no known cause in this log: it is empty"
    return "no known cause in this log" + (" for its last start" if hidden.get("earlier") else "")


def _diagnosis(diagnosis: Diagnosis, width: int) -> Iterator[Line]:
    head = f"{diagnosis.severity:<4}  "
    yield from wrapped_lines(diagnosis.cause, width, head, " " * _INDENT, STYLES[diagnosis.severity], 4)
    name = f"signature: {diagnosis.signature} (confidence: {diagnosis.confidence})"
    yield from wrapped_lines(name, width, " " * _INDENT, " " * _INDENT * 2)
    for line in diagnosis.evidence:
        yield from evidence_lines(line, width)
    yield from fix_lines(diagnosis.fix, width, _INDENT)
    for words in diagnosis.rule_out:
        yield from wrapped_lines(words, width, " " * _INDENT + "rule out: ", " " * _INDENT * 2)
    for source in diagnosis.source:
        yield Line(f"{' ' * _INDENT}source: {source}")


def evidence_lines(evidence: Evidence, width: int) -> Iterator[Line]:
    """A line of the log with its number, what tells in it marked; a long one on three lines at most."""
    place = f"line {evidence.line}: " if evidence.file is None else f"{evidence.file}:{evidence.line}: "
    first, following = " " * _INDENT + place, " " * (_INDENT + 2)
    text = " ".join(evidence.text.split())
    matched = " ".join((evidence.matched or "").split())
    begin = max(0, text.find(matched)) if matched else 0
    end = begin + len(matched)
    room = (width - len(following)) * _EVIDENCE_LINES - len(place)
    text, begin, end = _clipped(text, begin, end, room)
    cursor = 0
    for number, line in enumerate(columns.wrap(text, width, first, following)):
        head = len(first if number == 0 else following)
        start = text.find(line[head:], cursor)
        cursor = start + len(line) - head
        low, high = max(begin, start), min(end, cursor)
        yield Line(line, "dim", head, (head + low - start, head + high - start) if low < high else None)


def _clipped(text: str, begin: int, end: int, room: int) -> tuple[str, int, int]:
    """The part of a text around a place in it, and where the place is there."""
    if len(text) <= room:
        return text, begin, end
    cut = max(0, min(begin - room // 4, len(text) - room))
    kept = text[cut : cut + room]
    if cut > 0:
        kept = "..." + kept[3:]
    if cut + room < len(text):
        kept = kept[:-3] + "..."
    return kept, begin - cut, end - cut
