"""Configuration: `onecat.yaml` and profiles, read strictly, layered, each value knowing where it came from.

In: YAML files and the command line's values. Out: frozen `Deployment` and `Profile` records, or one error that tells
every problem with file, line, column, what was expected and the nearest valid name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onecat.config.combinations import SET_BY_ONECAT
    from onecat.config.editor_schema import json_schema
    from onecat.config.layers import layer_name
    from onecat.config.loading import deployment_from, is_file_name, list_profiles, load_deployment, load_profile
    from onecat.config.schema import Deployment, Origin, Profile
    from onecat.config.starter import deployment_name, starter_text
    from onecat.config.validate import nearest_name

_HOMES = {
    "SET_BY_ONECAT": "combinations",
    "is_file_name": "loading",
    "json_schema": "editor_schema",
    "layer_name": "layers",
    "deployment_from": "loading",
    "list_profiles": "loading",
    "load_deployment": "loading",
    "load_profile": "loading",
    "Deployment": "schema",
    "Origin": "schema",
    "Profile": "schema",
    "deployment_name": "starter",
    "starter_text": "starter",
    "nearest_name": "validate",
}

__all__ = [
    "SET_BY_ONECAT",
    "Deployment",
    "Origin",
    "Profile",
    "deployment_from",
    "deployment_name",
    "is_file_name",
    "json_schema",
    "layer_name",
    "list_profiles",
    "load_deployment",
    "load_profile",
    "nearest_name",
    "starter_text",
]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: pydantic and PyYAML cost 0.1 s that `onecat --help` must not pay."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
