"""Doctor: says what is wrong on a host, from its facts alone.

In: `Facts`, optionally a `Profile` and `Settings`. Out: `Finding` records (examine), and which profiles the host can
run (suitability). A check is one function in checks/, found by its decorator.
"""

from onecat.doctor.changes import Change, changes, remembered
from onecat.doctor.context import Context, Settings
from onecat.doctor.examination import examine, finding_of, select, suitability, verdicts
from onecat.doctor.findings import STATUSES, Finding, HostReport, Report, Status, Suitability, reaches, summary
from onecat.doctor.registry import Check, Rule, Verdict, all_checks, check, checks_in, find_check

__all__ = [
    "STATUSES",
    "Change",
    "Check",
    "Context",
    "Finding",
    "HostReport",
    "Report",
    "Rule",
    "Settings",
    "Status",
    "Suitability",
    "Verdict",
    "all_checks",
    "changes",
    "check",
    "checks_in",
    "examine",
    "find_check",
    "finding_of",
    "reaches",
    "remembered",
    "select",
    "suitability",
    "summary",
    "verdicts",
]
