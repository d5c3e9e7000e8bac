"""Commands that hold others, as `onecat model`."""

from __future__ import annotations

import typer


def command_group(text: str) -> typer.Typer:
    """A command that others are added to, and that shows its help without one of them. text: its help."""
    group = typer.Typer(invoke_without_command=True, help=text)

    def without_command(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    group.callback()(without_command)
    return group
