"""Log lines for people and for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from onecat.live.logs import Entry, Event, Finding, LeftOut, Loss, Notice, Source
from onecat.live.logs.records import Told
from onecat.observe import Diagnosis, to_json
from onecat.render import columns

SCHEMA = "onecat.logs/1"

# SGR codes (ECMA-48, 8.3.117). No yellow, white or blue: one of them is hard to read on a light or a dark background.
_RED, _MAGENTA, _DIM, _BOLD, _REVERSE, _PLAIN = "1;31", "35", "2", "1", "1;7", "0"
_LEVELS: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\b(?:CRITICAL|FATAL|ERROR)\b|\[(?:emerg|alert|crit|error)\]|^\w*(?:Error|Exception)\b"), _RED),
    (re.compile(r"\bWARN(?:ING)?\b|\[warn\]|\b\w+Warning:"), _MAGENTA),
    (re.compile(r"\bDEBUG\b|\[debug\]"), _DIM),
)
_LEVEL_COLUMNS = 120
"""How far into a line its level is looked for: behind its time, the engine's process and its name."""
_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\S+ ")
_MARKS = {"fail": "cause", "warn": "warning", "info": "harmless"}


def labels(sources: Iterable[Source], several_hosts: bool, several_logs: bool = False) -> Mapping[Source, str]:
    """What stands before the lines of each source: its host where there are several, its log where a host has
    several, or may have (`several_logs`), and its release where several have one."""
    known = list(dict.fromkeys(sources))
    telling = {each.host for each in known if several_logs or sum(other.host == each.host for other in known) > 1}
    releases = Counter(each.host for each in known if each.release is not None)

    def told(each: Source) -> str:
        words = [each.host] if several_hosts else []
        if each.host in telling:
            words.append(each.stream)
        if each.release is not None and releases[each.host] > 1:
            words.append(str(each.release))
        return " ".join(words)

    return {each: told(each) for each in known}


def event_line(event: Entry | Finding | Notice, label: str, width: int = 0, *, colours: bool = False) -> str:
    """One line of output, without its end.

    Parameters:
        label: see `labels`. width: columns that labels take.
        colours: whether the terminal shows them.

    What onecat says begins with `onecat: `, which no log's line ever does here.
    """
    if isinstance(event, Finding):
        return _finding_line(event.diagnosis, label, colours)
    if isinstance(event, Notice):
        mark = f"onecat: {columns.harmless(label)}:" if label else "onecat:"
        return f"{_styled(mark, _REVERSE if colours else '')} {columns.harmless(event.text)}"
    text = _clean(event.text)
    if not label and text.startswith("onecat: "):
        text = f"| {text}"
    prefix = f"{columns.pad(columns.harmless(label), width)} | " if label else ""
    if not colours:
        return prefix + text
    style = _style(text)
    return _styled(prefix, _BOLD if prefix else "") + _styled(text, style)


def loss_line(loss: Loss) -> str:
    """What is told on standard error of a host that is lost; the others go on."""
    found = getattr(loss.error, "found", None) or f"{type(loss.error).__name__}: {loss.error}"
    return f"onecat: {columns.harmless(loss.host)}: no more logs from this host: {columns.harmless(found)}"


def left_out_line(left_out: LeftOut) -> str:
    """What is told on standard error of lines that are too many."""
    place = f"{columns.harmless(left_out.source.host)}, {left_out.source.stream}"
    return (
        f"onecat: {place}: {left_out.count} earlier lines are left out, the last {left_out.kept} are told; "
        "choose with --since, --grep or -n"
    )


def diagnosis_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis as in `onecat.diagnose/1`."""
    (document,) = to_json([diagnosis])["diagnoses"]
    assert isinstance(document, dict)
    return document


def live_document(deployment: str | None, event: Told | LeftOut | Loss) -> dict[str, Any]:
    """One event while logs are followed, as a document of its own (`onecat.logs/1`)."""
    name = deployment if isinstance(event, Loss) else event.source.deployment
    head: dict[str, Any] = {"schema": SCHEMA, "deployment": name, "lines": []}
    if isinstance(event, Entry):
        return {**head, "lines": [event.text], **_place(event.source), "time": _time(event.moment)}
    if isinstance(event, Finding):
        return {**head, **_place(event.source), "diagnosis": diagnosis_document(event.diagnosis)}
    if isinstance(event, Notice):
        return {**head, **_place(event.source), "notice": event.text}
    if isinstance(event, LeftOut):
        return {**head, **_place(event.source), "left_out": event.count}
    return {**head, "host": event.host, "lost": getattr(event.error, "found", str(event.error))}


def logs_document(deployment: str | None, events: Iterable[Event]) -> dict[str, Any]:
    """What the logs hold (`onecat.logs/1`).

    lines: their text; entries: the same with their places; diagnoses: each with `after`, the number of lines before it;
    left_out: how many earlier lines of a log were too many; lost: hosts that did not answer.
    """
    entries: list[Entry] = []
    diagnoses, lost, left_out = [], [], []
    for event in events:
        if isinstance(event, Entry):
            entries.append(event)
        elif isinstance(event, Finding):
            document = diagnosis_document(event.diagnosis)
            diagnoses.append({"after": len(entries), **_place(event.source), "diagnosis": document})
        elif isinstance(event, LeftOut):
            left_out.append({**_place(event.source), "lines": event.count})
        elif isinstance(event, Loss):
            lost.append({"host": event.host, "found": getattr(event.error, "found", str(event.error))})
    return {
        "schema": SCHEMA,
        "deployment": entries[0].source.deployment if entries else deployment,
        "lines": [entry.text for entry in entries],
        "entries": [{**_place(entry.source), "time": _time(entry.moment), "line": entry.text} for entry in entries],
        "diagnoses": diagnoses,
        "left_out": left_out,
        "lost": lost,
    }


def _finding_line(diagnosis: Diagnosis, label: str, colours: bool) -> str:
    mark = f"onecat: {columns.harmless(label)}: " if label else "onecat: "
    mark += f"{_MARKS[diagnosis.severity]}:"
    step = f" -> next: {diagnosis.fix[0]}" if diagnosis.fix else ""
    text = " ".join(f" {diagnosis.cause} ({diagnosis.signature}){step}".split())
    return f"{_styled(mark, _REVERSE if colours else '')} {_styled(columns.harmless(text), _BOLD if colours else '')}"


def _place(source: Source) -> dict[str, Any]:
    return {"host": source.host, "source": source.stream, "release": source.release}


def _time(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _clean(text: str) -> str:
    """A line that cannot steer a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "\t".join(map(columns.harmless, _SEQUENCES.sub("", text).split("\t")))


def _style(text: str) -> str:
    time = _TIME.match(text)
    head = text[time.end() if time else 0 :][:_LEVEL_COLUMNS]
    return next((style for pattern, style in _LEVELS if pattern.search(head)), "")


def _styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[{_PLAIN}m" if style and text else text
