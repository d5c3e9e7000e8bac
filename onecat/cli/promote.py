"""`onecat promote`: let the canary take over."""

from __future__ import annotations

from typing import Annotated

import typer

from onecat.cli.canary import end_trial
from onecat.cli.changes import ConfigOption, DryRunOption, NameArgument
from onecat.cli.machines import HostOption

SCHEMA = "onecat.promote/1"


def register(app: typer.Typer) -> None:
    app.command("promote", help="Let the canary take over, and end the release before it.")(promote)


def promote(
    name: NameArgument = None,
    config: ConfigOption = None,
    hosts: HostOption = None,
    dry_run: DryRunOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.promote/1).")] = False,
) -> None:
    from onecat import deploy

    end_trial(
        deploy.promote_canary, lambda trial: (trial.canary, trial.stable), hosts, config, name, dry_run, as_json, SCHEMA
    )
