"""`onecat model inspect`: what a checkpoint is made of, from its headers and configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console


def add_to(group: typer.Typer) -> None:
    group.command("inspect", help="Show what a checkpoint is made of, from headers and configuration.")(inspect_model)


def inspect_model(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Directory, config.json, or directory of headers.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON (onecat.model/1).")] = False,
) -> None:
    from onecat.checkpoints import inspect

    seen = inspect(path)
    if as_json:
        console.print_json(
            {
                "schema": "onecat.model/1",
                "architecture": seen.architecture.name,
                "parameters": seen.parameters,
                "weight_bytes": seen.weight_bytes,
                "layers": seen.architecture.layers,
            }
        )
    else:
        print(f"{seen.architecture.name}: {seen.parameters} parameters, {seen.weight_bytes} bytes")
