"""The planner: decides how the server is started, and says why for each argument. Pure: no I/O, no clock.

In: a deployment, its profile, the checkpoint, facts if there are any. Out: a `Plan` with arguments, reasons, and what
the engine would refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecat.planner.detection import Detection, detect_profile
    from onecat.planner.flags import check_profile_flags
    from onecat.planner.records import ContainerPlan, Layout, Plan, Reason, Refusal, to_json
    from onecat.planner.synthesis import make_plan

_HOMES = {
    "ContainerPlan": "records",
    "Detection": "detection",
    "Layout": "records",
    "Plan": "records",
    "Reason": "records",
    "Refusal": "records",
    "check_profile_flags": "flags",
    "detect_profile": "detection",
    "make_plan": "synthesis",
    "to_json": "records",
}

__all__ = [
    "ContainerPlan",
    "Detection",
    "Layout",
    "Plan",
    "Reason",
    "Refusal",
    "check_profile_flags",
    "detect_profile",
    "make_plan",
    "to_json",
]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used, so that the records alone do not load pydantic."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
