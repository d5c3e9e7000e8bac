"""Deploy: start a planned server, see that it answers well, put nginx before it, and keep it running.

In: a `Plan`, the `Deployment` and `Profile` it was made from, and a launcher that knows the engine's command line.
Out: a numbered `Release` under `Home.deployments`; `status`, `logs` and `down` read and end what `up` has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecat.deploy.canary import (
        Trial,
        abort_canary,
        canary_failed,
        look_at_canary,
        promote_canary,
        settle_canary,
        start_canary,
    )
    from onecat.deploy.drift import Comparison, compare_deployment, comparison_document
    from onecat.deploy.engine import engine_document
    from onecat.deploy.forecast import Forecast, forecast_restart, forecast_rollback, forecast_up
    from onecat.deploy.keys import reload_keys
    from onecat.deploy.operations import (
        DeploymentStatus,
        down,
        follow_log,
        last_lines,
        releases_document,
        status,
        up_document,
    )
    from onecat.deploy.overview import Overview, overview, overviews, overviews_document, overviews_exit
    from onecat.deploy.ports import own_ports
    from onecat.deploy.preparing import prepare_run
    from onecat.deploy.releases import Release
    from onecat.deploy.repeating import restart, rollback
    from onecat.deploy.request import UpRequest
    from onecat.deploy.rollout import check_up, up
    from onecat.deploy.smoke import SmokeFailure, ask
    from onecat.deploy.store import DeploymentStore, deployments, find_deployment

# The supervisor runs from this package and must stay small, so what others may use is imported when it is used.
_DOORWAY = {
    "Trial": "canary",
    "abort_canary": "canary",
    "canary_failed": "canary",
    "look_at_canary": "canary",
    "promote_canary": "canary",
    "settle_canary": "canary",
    "start_canary": "canary",
    "engine_document": "engine",
    "Comparison": "drift",
    "check_up": "rollout",
    "compare_deployment": "drift",
    "comparison_document": "drift",
    "DeploymentStatus": "operations",
    "Forecast": "forecast",
    "Release": "releases",
    "SmokeFailure": "smoke",
    "ask": "smoke",
    "UpRequest": "request",
    "deployments": "store",
    "DeploymentStore": "store",
    "down": "operations",
    "find_deployment": "store",
    "forecast_restart": "forecast",
    "forecast_rollback": "forecast",
    "forecast_up": "forecast",
    "follow_log": "operations",
    "last_lines": "operations",
    "Overview": "overview",
    "overview": "overview",
    "overviews": "overview",
    "overviews_document": "overview",
    "overviews_exit": "overview",
    "own_ports": "ports",
    "prepare_run": "preparing",
    "releases_document": "operations",
    "reload_keys": "keys",
    "restart": "repeating",
    "rollback": "repeating",
    "status": "operations",
    "up": "rollout",
    "up_document": "operations",
}
__all__ = [
    "Comparison",
    "DeploymentStatus",
    "DeploymentStore",
    "Forecast",
    "Overview",
    "Release",
    "SmokeFailure",
    "Trial",
    "UpRequest",
    "abort_canary",
    "ask",
    "canary_failed",
    "check_up",
    "compare_deployment",
    "comparison_document",
    "deployments",
    "down",
    "engine_document",
    "find_deployment",
    "follow_log",
    "forecast_restart",
    "forecast_rollback",
    "forecast_up",
    "last_lines",
    "look_at_canary",
    "overview",
    "overviews",
    "overviews_document",
    "overviews_exit",
    "own_ports",
    "prepare_run",
    "promote_canary",
    "releases_document",
    "reload_keys",
    "restart",
    "rollback",
    "settle_canary",
    "start_canary",
    "status",
    "up",
    "up_document",
]


def __getattr__(name: str) -> Any:
    if name not in _DOORWAY:
        raise AttributeError(f"module 'onecat.deploy' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"onecat.deploy.{_DOORWAY[name]}"), name)
