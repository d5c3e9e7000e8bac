"""The JSON Schemas of both files, for editors."""

from __future__ import annotations

from typing import Any, Literal

from onecat.config.schema import Deployment, Profile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Kind = Literal["deployment", "profile", "profile-part"]
TITLES: dict[Kind, str] = {
    "deployment": "onecat.yaml",
    "profile": "onecat profile",
    "profile-part": "part of an onecat profile",
}
_GROUPS = ("Hardware", "EnginePin", "ImageRecipe", "Launch", "ContainerNeeds", "Expectations", "DriverLimits")
"""Records of a profile that are put together from several layers, so that no layer has to have all of their keys."""


def json_schema(kind: Kind) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `onecat.yaml` ("deployment"), of a profile, or of a part that profiles extend.

    A profile's keys may stand in the layers that it extends: with `extends` only its name has to stand in the file.
    """
    schema = (Deployment if kind == "deployment" else Profile).model_json_schema()
    if kind != "deployment":
        complete = schema.pop("required")
        for group in _GROUPS:
            schema["$defs"][group].pop("required", None)
        if kind == "profile":
            schema["anyOf"] = [{"required": ["name", "extends"]}, {"required": complete}]
        else:
            for own in ("name", "alternative"):
                del schema["properties"][own]
    return {"$schema": DIALECT, "$id": f"urn:onecat:schema:{kind}:1", **schema, "title": TITLES[kind]}
