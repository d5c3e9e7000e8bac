"""`onecat restart`: start the current release anew."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.changes import ConfigOption, DryRunOption, NameArgument, show_change, show_forecast
from onecat.cli.machines import HostOption

SCHEMA = "onecat.restart/1"


def register(app: typer.Typer) -> None:
    app.command("restart", help="Start the release that serves, or served last, anew; as gently as up does.")(restart)


def restart(
    name: NameArgument = None,
    config: ConfigOption = None,
    hosts: HostOption = None,
    dry_run: DryRunOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.restart/1).")] = False,
) -> None:
    from onecat import deploy
    from onecat.cli.fleet import front_of_store
    from onecat.cli.machines import chosen_hosts, facts_of, only_host, open_hosts
    from onecat.cli.status import chosen_name

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        machine = only_host(opened)
        store = deploy.find_deployment(machine, chosen_name(name, config))
        if dry_run:
            show_forecast(deploy.forecast_restart(store, facts_of(machine)), as_json, SCHEMA)
            return
        console.end_like_ctrl_c()
        with front_of_store(store) as front:
            release = deploy.restart(store, facts_of(machine), console.progress, front)
    show_change(release, True, as_json, SCHEMA)
