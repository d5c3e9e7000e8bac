"""What is different between two examinations of the same hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from onecat.doctor.findings import Finding, HostReport, Report, Status

ChangeKind = Literal["unreachable", "reachable", "new", "worse", "better", "unknown", "gone"]

REACHABLE = "host.reachable"
"""Stands where a check's id stands, in changes that are about the host itself."""

_TROUBLE: tuple[Status, ...] = ("fail", "warn", "info")
_SEVERITY: dict[Status, int] = {"fail": 3, "warn": 2, "info": 1, "pass": 0}


@dataclass(frozen=True)
class Change:
    """One finding that is not what it was.

    kind: `new` trouble about something that had no finding or could not be judged; `worse` and `better` by status;
    `unknown` trouble that cannot be judged any more; `gone` trouble whose subject has no finding any more;
    `unreachable` and `reachable` for the host as a whole, with `check` host.reachable and no findings.
    before, after: the finding then and now, None where there is none.
    """

    host: str
    kind: ChangeKind
    check: str
    subject: str = ""
    before: Finding | None = None
    after: Finding | None = None
    reason: str | None = None


def changes(before: Report, after: Report) -> tuple[Change, ...]:
    """What is new, worse, better, unknown or gone since `before`: by host, then by check. Pure.

    The same finding with other figures in its title or evidence is no change, and neither is anything that passes
    now and was not known before. Of a host that could not be reached before, its findings are compared with those
    that `before` has for it, if any (see `remembered`).
    """
    earlier = {host.name: host for host in before.hosts}
    found: list[Change] = []
    for host in after.hosts:
        found += _of_host(earlier.get(host.name), host)
    return tuple(found)


def remembered(before: Report, after: Report) -> Report:
    """`after`, where hosts that could not be reached keep the findings that `before` had for them.

    With it as the next comparison's `before`, a host that was away for a while shows only what really changed.
    """
    earlier = {host.name: host for host in before.hosts}
    hosts = tuple(
        replace(host, findings=earlier[host.name].findings) if not host.reachable and host.name in earlier else host
        for host in after.hosts
    )
    return replace(after, hosts=hosts)


def _of_host(before: HostReport | None, after: HostReport) -> Iterator[Change]:
    was_reachable = before is None or before.reachable
    if not after.reachable:
        if was_reachable:
            yield Change(after.name, "unreachable", REACHABLE, reason=after.reason)
        return
    if not was_reachable:
        yield Change(after.name, "reachable", REACHABLE)
    then, now = _by_identity(before.findings if before else ()), _by_identity(after.findings)
    for key in sorted(then.keys() | now.keys()):
        kind = _kind(then.get(key), now.get(key))
        if kind is not None:
            check, subject, _ = key
            yield Change(after.name, kind, check, subject, then.get(key), now.get(key))


def _kind(before: Finding | None, after: Finding | None) -> ChangeKind | None:
    was, now = before.status if before else None, after.status if after else None
    if now is None:
        return "gone" if was in _TROUBLE else None
    if now == "skip":
        return "unknown" if was in _TROUBLE else None
    if was is None or was == "skip":
        return "new" if now in _TROUBLE else None
    difference = _SEVERITY[now] - _SEVERITY[was]
    return None if difference == 0 else "worse" if difference > 0 else "better"


def _by_identity(findings: Iterable[Finding]) -> dict[tuple[str, str, int], Finding]:
    """Findings by check, subject, and place among those of the same check and subject, the gravest first."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.check, finding.subject), []).append(finding)
    return {
        (check, subject, place): finding
        for (check, subject), group in groups.items()
        for place, finding in enumerate(sorted(group, key=lambda each: -_SEVERITY.get(each.status, -1)))
    }
