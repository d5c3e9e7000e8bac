"""Doctor: says what is wrong on a host, from its facts alone.

In: `Facts`, optionally a `Profile` and `Settings`. Out: `Finding` records (examine), and which profiles the host can
run (suitability). A check is one function in checks/, found by its decorator.
"""

from onecat.doctor.changes import Change, changes, remembered
from onecat.doctor.context import Context, Settings
from onecat.doctor.examination import examine, select, suitability
from onecat.doctor.findings import STATUSES, Finding, HostReport, Report, Status, Suitability, reaches, summary
from onecat.doctor.registry import Check, all_checks, find_check

__all__ = [
    "STATUSES",
    "Change",
    "Check",
    "Context",
    "Finding",
    "HostReport",
    "Report",
    "Settings",
    "Status",
    "Suitability",
    "all_checks",
    "changes",
    "examine",
    "find_check",
    "reaches",
    "remembered",
    "select",
    "suitability",
    "summary",
]
