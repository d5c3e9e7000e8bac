"""What a watcher of hosts sees: lines that are appended, documents for programs, or a view that is drawn anew."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from onecat.doctor import STATUSES, Change, Report, Status, reaches
from onecat.render import columns
from onecat.render.fleet import totals_line
from onecat.render.json import doctor_document, finding_document
from onecat.render.text import STYLES, Line, doctor_lines, print_lines

if TYPE_CHECKING:
    from rich.console import Console

_KEPT = 100
_WORDS = {
    "unreachable": "is not reachable",
    "reachable": "is reachable again",
    "unknown": "not known any more",
}


def json_line(time: datetime, report: Report, changes: Sequence[Change]) -> str:
    """One examination as one line of JSON: onecat.doctor/1 with `time` and `changes`."""
    document = {**doctor_document(report), "time": time.isoformat(timespec="seconds")}
    return json.dumps({**document, "changes": [_change_document(each) for each in changes]}, ensure_ascii=True)


def _change_document(change: Change) -> dict[str, Any]:
    return {
        "host": change.host,
        "kind": change.kind,
        "check": change.check,
        "subject": change.subject,
        "before": finding_document(change.before) if change.before else None,
        "after": finding_document(change.after) if change.after else None,
        "reason": change.reason,
    }


def change_line(time: datetime, change: Change, width: int) -> Iterator[Line]:
    """One change in a line or some, as: `12:00:01 gpu1 worse: GPU 0: Xid 79 [gpu.xid] (was pass)`."""
    clock = f"{time:%H:%M:%S}"
    status: Status = "fail" if change.kind == "unreachable" else "pass"
    finding = change.after or change.before
    if finding is None:
        text = f"{change.host} {_WORDS[change.kind]}" + (f": {change.reason}" if change.reason else "")
    else:
        status = change.after.status if change.after else "pass"
        was = f" (was {change.before.status})" if change.before and change.after else ""
        subject = f"{change.subject}: " if change.subject and change.subject not in finding.title else ""
        text = f"{change.host} {_WORDS.get(change.kind, change.kind)}: {subject}{finding.title} [{change.check}]{was}"
    first, *others = columns.wrap(text, width, f"{clock} ", " " * 9)
    yield Line(first, STYLES[status], len(clock))
    yield from map(Line, others)


def appended_lines(
    time: datetime, report: Report, changes: Sequence[Change], is_first: bool, *, width: int = 80
) -> Iterator[Line]:
    """The whole report the first time, afterwards only what has changed."""
    if is_first:
        yield from doctor_lines(report, width=width)
        yield Line(f"{time:%H:%M:%S} watching; changes follow, Ctrl-C ends")
    for change in changes:
        yield from change_line(time, change, width)


class Screen:
    """A terminal that shows what is wrong now and what has changed lately, drawn anew for each examination."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._log: list[tuple[datetime, Change]] = []

    def show(self, time: datetime, report: Report, changes: Sequence[Change], is_first: bool) -> None:
        """Draw one examination."""
        self._log = [*self._log, *((time, change) for change in changes)][-_KEPT:]
        lines = view_lines(time, report, self._log, width=self._console.width, height=self._console.height)
        self._console.clear()
        print_lines(self._console, lines)


def view_lines(
    time: datetime, report: Report, log: Sequence[tuple[datetime, Change]], *, width: int, height: int
) -> list[Line]:
    """A screen of at most `height` - 1 lines: totals, then what is wrong, then the latest changes, the newest last."""
    head = [Line(columns.clip(f"{time:%H:%M:%S}  {_totals(report)}  (Ctrl-C ends)", width), "bold", 8)]
    changed = [line for at, change in log for line in change_line(at, change, width)]
    wrong = list(_wrong(report, width))
    room = max(height - 4, 4)
    for_changes = min(len(changed), max(room // 2, room - len(wrong)))
    for_wrong = room - for_changes
    if len(wrong) > for_wrong:
        left = len(wrong) - for_wrong + 1
        wrong = [*wrong[: for_wrong - 1], Line(f"... and {left} more")]
    tail = [Line(""), *changed[-for_changes:]] if for_changes else []
    return [*head, Line(""), *wrong, *tail]


def _totals(report: Report) -> str:
    if len(report.hosts) > 1:
        return totals_line(report)
    host = report.hosts[0]
    return f"{host.name}: {totals_line(report).partition('; ')[2] if host.reachable else 'not reachable'}"


def _wrong(report: Report, width: int) -> Iterator[Line]:
    """A line for each host out of reach and for each failure and warning, failures first."""
    for host in report.hosts:
        if not host.reachable:
            text = columns.clip(f"fail  {host.name}: not reachable: {host.reason}", width)
            yield Line(text, STYLES["fail"], 4)
    named = len(report.hosts) > 1
    rows = [(finding, host.name) for host in report.hosts for finding in host.findings if reaches(finding, "warn")]
    for finding, name in sorted(rows, key=lambda row: STATUSES.index(row[0].status)):
        subject = f"{finding.subject}: " if finding.subject and finding.subject not in finding.title else ""
        text = f"{finding.status:<5} {name + ': ' if named else ''}{subject}{finding.title} [{finding.check}]"
        yield Line(columns.clip(text, width), STYLES[finding.status], len(finding.status))
    if not rows and all(host.reachable for host in report.hosts):
        yield Line("nothing is wrong")
