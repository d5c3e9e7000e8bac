"""`onecat bench`: load on a deployment, measured. Each subcommand has a module of its own, called bench_*."""

from __future__ import annotations

import importlib
import pkgutil

import typer

import onecat.cli
from onecat.cli.groups import command_group


def register(app: typer.Typer) -> None:
    group = command_group("Put load on a deployment and measure it, compare runs, find better settings.")
    for module in sorted(each.name for each in pkgutil.iter_modules(onecat.cli.__path__)):
        if module.startswith("bench_"):
            add_to = getattr(importlib.import_module(f"onecat.cli.{module}"), "add_to", None)
            if add_to is not None:
                add_to(group)
    app.add_typer(group, name="bench")
