"""`onecat schema`: the JSON Schemas of onecat.yaml and of profiles, for editors."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from onecat.cli import console


class Kind(str, Enum):
    """The files that have a schema."""

    deployment = "deployment"
    profile = "profile"
    profile_part = "profile-part"


def register(app: typer.Typer) -> None:
    app.command("schema", help="Print the JSON Schema of onecat.yaml (deployment), a profile, or a part of one.")(
        schema
    )


def schema(
    kind: Annotated[Kind, typer.Argument(help="Which file: deployment is onecat.yaml.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Accepted for uniformity: the output is JSON anyway.")
    ] = False,
) -> None:
    from onecat.config import json_schema

    console.print_json(json_schema(kind.value))
