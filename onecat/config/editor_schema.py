"""The JSON Schemas of both files, for editors."""

from __future__ import annotations

from typing import Any, Literal

from onecat.config.schema import Deployment, Profile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: Literal["deployment", "profile"]) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `onecat.yaml` ("deployment") or of a profile."""
    model = Deployment if kind == "deployment" else Profile
    schema = model.model_json_schema()
    title = "onecat.yaml" if kind == "deployment" else "onecat profile"
    return {"$schema": DIALECT, "$id": f"urn:onecat:schema:{kind}:1", **schema, "title": title}
