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
class Suitability:
    """Whether a host can run a profile: in which runtimes, and what is missing where there is none.

    unknown: ids of the checks without which nobody can say so; then `missing` is empty.
    """

    profile: str
    runtimes: tuple[str, ...]
    missing: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostReport:
    """All findings about one host.

    reachable: false when no facts could be had; then `reason` says why, `evidence` what was seen, `fix` what to type.
    suitability: filled when no profile was asked for.
    """

    name: str
    reachable: bool
    seconds: float
    findings: tuple[Finding, ...] = ()
    reason: str | None = None
    suitability: tuple[Suitability, ...] = ()
    evidence: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What doctor has to say about some hosts, examined for one profile or for none."""

    profile: str | None
    hosts: tuple[HostReport, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all hosts."""
        return tuple(finding for host in self.hosts for finding in host.findings)


def summary(findings: Iterable[Finding]) -> dict[Status, int]:
    """How many findings there are of each status, in order of severity."""
    listed = list(findings)
    return {status: sum(finding.status == status for finding in listed) for status in STATUSES}


def reaches(finding: Finding, threshold: Status) -> bool:
    """Whether a finding is at or above a `--fail-on` threshold (fail > warn > info)."""
    return STATUSES.index(finding.status) <= STATUSES.index(threshold)
