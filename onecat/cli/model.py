"""`onecat model`: look at checkpoints, verify them, fetch them. Each subcommand has a module of its own."""

from __future__ import annotations

import typer

from onecat.cli import (
    model_convert,
    model_dequantize,
    model_import_bin,
    model_inspect,
    model_pull,
    model_repack,
    model_verify,
)
from onecat.cli.groups import command_group


def register(app: typer.Typer) -> None:
    group = command_group("Look at checkpoints, verify, fetch and convert them.")
    model_inspect.add_to(group)
    model_verify.add_to(group)
    model_pull.add_to(group)
    model_convert.add_to(group)
    model_dequantize.add_to(group)
    model_import_bin.add_to(group)
    model_repack.add_to(group)
    app.add_typer(group, name="model")
