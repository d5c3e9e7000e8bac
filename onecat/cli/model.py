"""`onecat model`: look at checkpoints, verify them, fetch them. Each subcommand has a module of its own."""

from __future__ import annotations

import typer

from onecat.cli import model_inspect, model_pull, model_verify


def register(app: typer.Typer) -> None:
    group = typer.Typer(name="model", help="Look at checkpoints, verify them, fetch them.", no_args_is_help=True)
    model_inspect.add_to(group)
    model_verify.add_to(group)
    model_pull.add_to(group)
    app.add_typer(group)
