"""Preflight: whether a deployment that runs is fit for traffic.

In: the stores of a deployment on its hosts, and limits. Out: doctor's `Finding` records, by host. A check is a function
in checks/, found by its decorator, and looks only at what was observed; what can be observed is a record in observing/
with the function that gathers it. Nothing on a host is changed, and load is bounded and told before.
"""

from onecat.live.preflight.limits import Options, limits_of
from onecat.live.preflight.registry import all_preflight_checks, groups
from onecat.live.preflight.reporting import PREFLIGHT_SCHEMA, PreflightReport, preflight_document
from onecat.live.preflight.running import preflight

__all__ = [
    "PREFLIGHT_SCHEMA",
    "Options",
    "PreflightReport",
    "all_preflight_checks",
    "groups",
    "limits_of",
    "preflight",
    "preflight_document",
]
