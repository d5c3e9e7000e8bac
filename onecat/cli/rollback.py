"""`onecat rollback`: make an earlier release serve again."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli.changes import ConfigOption, DryRunOption, NameArgument
from onecat.cli.machines import HostOption
from onecat.cli.repeated import MaxFailuresOption, repeat


def register(app: typer.Typer) -> None:
    app.command("rollback", help="Make an earlier release serve again; onecat.yaml is not needed for it.")(rollback)


def rollback(
    name: NameArgument = None,
    to: Annotated[
        int | None, typer.Option("--to", metavar="N", help="Number of the release [the one that served before].")
    ] = None,
    config: ConfigOption = None,
    hosts: HostOption = None,
    max_failures: MaxFailuresOption = 0,
    dry_run: DryRunOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.rollback/1).")] = False,
) -> None:
    from onecat import deploy

    repeat(
        "rollback",
        hosts,
        config,
        name,
        lambda each: deploy.forecast_rollback(each.store, to, each.facts, each.front),
        lambda each: deploy.rollback(each.store, to, each.facts, each.report, each.front),
        max_failures,
        dry_run,
        as_json,
    )
