"""JSON documents for other programs; their forms are contracts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onecat.doctor import Finding, HostReport, Report, Rule, Suitability, summary

if TYPE_CHECKING:
    from onecat.knowledge.claims import Claim

DOCTOR = "onecat.doctor/1"
EXPLAIN = "onecat.explain/1"
_NOT_TOLD = ("requires", "to_pass", "body", "group", "place")
"""Fields of a check that say how it is made, not what it is."""


def doctor_document(report: Report) -> dict[str, Any]:
    """Doctor's report in the form onecat.doctor/1.

    A host that could not be reached has `reason`, with `evidence` and `fix`; without a profile each host has
    `profiles`, what it can run.
    """
    return {
        "schema": DOCTOR,
        "profile": report.profile,
        "hosts": [_host(host) for host in report.hosts],
        "summary": summary(report.findings),
    }


def _host(host: HostReport) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": host.name,
        "reachable": host.reachable,
        "seconds": round(host.seconds, 3),
        "findings": [finding_document(finding) for finding in host.findings],
    }
    if host.reason is not None:
        document["reason"] = host.reason
        document["evidence"] = list(host.evidence)
        document["fix"] = list(host.fix)
    if host.suitability:
        document["profiles"] = [_suitability(each) for each in host.suitability]
    return document


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding, as in onecat.doctor/1."""
    return _lists(vars(finding))


def _suitability(result: Suitability) -> dict[str, Any]:
    return {
        "name": result.profile,
        "runtimes": list(result.runtimes),
        "missing": [{"check": finding.check, "title": finding.title} for finding in result.missing],
        "unknown": list(result.unknown),
    }


def explain_document(checks: Sequence[Rule[Any]], claims: Sequence[Claim] = ()) -> dict[str, Any]:
    """The pages of checks, and claims of how-to articles, in the form onecat.explain/1."""
    fields = [field.name for field in dataclasses.fields(Rule) if field.name not in _NOT_TOLD]
    return {
        "schema": EXPLAIN,
        "checks": [_lists({name: getattr(check, name) for name in fields}) for check in checks],
        "claims": [_lists(vars(claim)) for claim in claims],
    }


def _lists(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
