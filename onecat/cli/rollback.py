"""`onecat rollback`: make an earlier release serve again."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.changes import ConfigOption, DryRunOption, NameArgument, show_change, show_forecast
from onecat.cli.machines import HostOption

SCHEMA = "onecat.rollback/1"


def register(app: typer.Typer) -> None:
    app.command("rollback", help="Make an earlier release serve again; onecat.yaml is not needed for it.")(rollback)


def rollback(
    name: NameArgument = None,
    to: Annotated[
        int | None, typer.Option("--to", metavar="N", help="Number of the release [the one that served before].")
    ] = None,
    config: ConfigOption = None,
    hosts: HostOption = None,
    dry_run: DryRunOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.rollback/1).")] = False,
) -> None:
    from onecat import deploy
    from onecat.cli.fleet import front_of_store
    from onecat.cli.machines import chosen_hosts, facts_of, only_host, open_hosts
    from onecat.cli.status import chosen_name

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        machine = only_host(opened)
        store = deploy.find_deployment(machine, chosen_name(name, config))
        if dry_run:
            show_forecast(deploy.forecast_rollback(store, to, facts_of(machine)), as_json, SCHEMA)
            return
        before = store.current()
        console.end_like_ctrl_c()
        with front_of_store(store) as front:
            release = deploy.rollback(store, to, facts_of(machine), console.progress, front)
    show_change(release, before is None or before.number != release.number, as_json, SCHEMA)
