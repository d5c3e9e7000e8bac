"""`onecat abort`: end the canary."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.canary import show_end
from onecat.cli.changes import ConfigOption, DryRunOption, NameArgument, show_change
from onecat.cli.machines import HostOption

SCHEMA = "onecat.abort/1"


def register(app: typer.Typer) -> None:
    app.command("abort", help="End the canary; the release before it gets all requests again.")(abort)


def abort(
    name: NameArgument = None,
    config: ConfigOption = None,
    hosts: HostOption = None,
    dry_run: DryRunOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.abort/1).")] = False,
) -> None:
    from onecat import deploy
    from onecat.cli.machines import chosen_hosts, only_host, open_hosts
    from onecat.cli.status import chosen_name

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        store = deploy.find_deployment(only_host(opened), chosen_name(name, config))
        if dry_run:
            trial = deploy.look_at_canary(store)
            show_end(trial.stable, trial.canary, as_json, SCHEMA)
            return
        console.end_like_ctrl_c()
        release = deploy.abort_canary(store, console.progress)
    show_change(release, True, as_json, SCHEMA)
