"""`onecat restart`: start the current release anew."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli.changes import ConfigOption, DryRunOption, NameArgument
from onecat.cli.machines import HostOption
from onecat.cli.repeated import MaxFailuresOption, repeat


def register(app: typer.Typer) -> None:
    app.command("restart", help="Start the release that serves, or served last, anew; as gently as up does.")(restart)


def restart(
    name: NameArgument = None,
    config: ConfigOption = None,
    hosts: HostOption = None,
    max_failures: MaxFailuresOption = 0,
    dry_run: DryRunOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.restart/1).")] = False,
) -> None:
    from onecat import deploy

    repeat(
        "restart",
        hosts,
        config,
        name,
        lambda each: deploy.forecast_restart(each.store, each.facts, each.front),
        lambda each: deploy.restart(each.store, each.facts, each.report, each.front),
        max_failures,
        dry_run,
        as_json,
    )
