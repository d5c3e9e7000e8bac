"""`onecat model`: look at checkpoints, verify them, fetch them. Each subcommand has a module of its own."""

from __future__ import annotations

import typer

from onecat.cli import model_inspect, model_pull, model_verify


def register(app: typer.Typer) -> None:
    group = typer.Typer(invoke_without_command=True, help="Look at checkpoints, verify them, fetch them.")

    def without_command(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    group.callback()(without_command)
    model_inspect.add_to(group)
    model_verify.add_to(group)
    model_pull.add_to(group)
    app.add_typer(group, name="model")
