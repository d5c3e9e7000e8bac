"""`onecat abort`: end the canary."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli.canary import end_trial
from onecat.cli.changes import ConfigOption, DryRunOption, NameArgument
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

    end_trial(
        deploy.abort_canary, lambda trial: (trial.stable, trial.canary), hosts, config, name, dry_run, as_json, SCHEMA
    )
