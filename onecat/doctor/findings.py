"""Findings: what a check says about a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["fail", "warn", "info", "pass", "skip"]
STATUSES: tuple[Status, ...] = ("fail", "warn", "info", "pass", "skip")


@dataclass(frozen=True)
class Finding:
    """One statement of one check about one subject.

    evidence: what was seen, as a person would quote it; why: why it matters; fix: commands or edits to make;
    source: addresses of the documents the rule comes from.
    """

    check: str
    status: Status
    title: str
    subject: str = ""
    evidence: tuple[str, ...] = ()
    why: str = ""
    fix: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostReport:
    """All findings about one host. `reachable` is false when no facts could be had; `reason` then says why."""

    name: str
    reachable: bool
    seconds: float
    findings: tuple[Finding, ...] = ()
    reason: str | None = None


def summary(findings: Iterable[Finding]) -> dict[Status, int]:
    """How many findings there are of each status, in order of severity."""
    listed = list(findings)
    return {status: sum(finding.status == status for finding in listed) for status in STATUSES}


def reaches(finding: Finding, threshold: Status) -> bool:
    """Whether a finding is at or above a `--fail-on` threshold (fail > warn > info)."""
    return STATUSES.index(finding.status) <= STATUSES.index(threshold)
