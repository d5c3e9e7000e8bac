"""What a run of preflight says of all hosts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onecat.doctor import Finding, HostReport, summary
from onecat.live.preflight.registry import ESSENTIAL, groups

PREFLIGHT_SCHEMA = "onecat.preflight/1"


@dataclass(frozen=True)
class PreflightReport:
    """What was found of a deployment. releases: the number of the one that serves, by host. limits: those that counted,
    by name."""

    deployment: str
    hosts: tuple[HostReport, ...]
    releases: dict[str, int]
    limits: dict[str, Any]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all hosts."""
        return tuple(finding for host in self.hosts for finding in host.findings)

    @property
    def undecided(self) -> tuple[str, ...]:
        """The essential checks that were not made on some host that was reached."""
        reached = [host for host in self.hosts if host.reachable]
        return tuple(
            check
            for check in ESSENTIAL
            if not all(any(each.check == check and each.status != "skip" for each in host.findings) for host in reached)
        )


def preflight_document(report: PreflightReport) -> dict[str, Any]:
    """The report in the form onecat.preflight/1; a host that could not be reached has `reason`, `evidence`, `fix`."""
    by_check = groups()
    return {
        "schema": PREFLIGHT_SCHEMA,
        "deployment": report.deployment,
        "limits": report.limits,
        "undecided": list(report.undecided),
        "hosts": [
            {
                "name": host.name,
                "reachable": host.reachable,
                "release": report.releases.get(host.name),
                "seconds": round(host.seconds, 3),
                "findings": [{**asdict(finding), "group": by_check[finding.check]} for finding in host.findings],
                **(
                    {}
                    if host.reason is None
                    else {"reason": host.reason, "evidence": list(host.evidence), "fix": list(host.fix)}
                ),
            }
            for host in report.hosts
        ],
        "summary": summary(report.findings),
    }
