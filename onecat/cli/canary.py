"""`onecat canary`: how the release does that is tried with a share of the requests, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.cli.changes import ConfigOption, NameArgument, show_change
from onecat.cli.machines import HostOption
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStore, Release, Trial
    from onecat.deploy.request import Report

SCHEMA = "onecat.canary/1"
INTERVAL_SECONDS = 10.0
TOLD_EVERY_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    app.command(
        "canary", help="Tell how a canary does; with --settle or --watch promote or abort it when its time has come."
    )(canary)


def canary(
    name: NameArgument = None,
    config: ConfigOption = None,
    hosts: HostOption = None,
    settle: Annotated[
        bool, typer.Option("--settle", help="Promote or abort it if its time has come (for cron and timers).")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Wait until it is promoted or aborted.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")
    ] = INTERVAL_SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.canary/1).")] = False,
) -> None:
    from onecat import deploy
    from onecat.cli.machines import chosen_hosts, only_host, open_hosts
    from onecat.cli.status import chosen_name

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        store = deploy.find_deployment(only_host(opened), chosen_name(name, config))
        if watch:
            watch_canary(store, interval, as_json)
            return
        serving = None
        if settle:
            console.end_like_ctrl_c()
            trial, serving = deploy.settle_canary(store, console.progress)
        else:
            trial = deploy.look_at_canary(store)
    show(trial, None if serving is None else serving.number, as_json)
    if trial.verdict.word == "broken":
        raise typer.Exit(int(ExitCode.NO))


def watch_canary(store: DeploymentStore, interval: float, as_json: bool) -> None:
    """Look at the canary now and then until it takes over or goes.

    Raises OnecatError (ROLLED_BACK) when it has gone; KeyboardInterrupt passes through, and the canary stays.
    """
    from onecat import deploy

    told: float | None = None
    trial, serving = None, None
    try:
        while serving is None:
            if trial is not None:
                time.sleep(interval)
            try:
                trial, serving = deploy.settle_canary(store, console.progress)
            except OnecatError as error:
                # A host that cannot be reached for a moment is no reason to give up a trial of hours.
                if error.code is not ExitCode.UNREACHABLE or trial is None:
                    raise
                console.progress(f"canary: {error.found}; looking again")
                continue
            if told is None or time.monotonic() - told >= TOLD_EVERY_SECONDS:
                told = time.monotonic()
                console.progress(f"canary: {trial.verdict.why}; {figures(trial)}")
    except KeyboardInterrupt:
        console.progress(
            f"the canary stays; go on: onecat canary {store.name} --watch; "
            f"or onecat promote {store.name}, onecat abort {store.name}"
        )
        raise
    assert trial is not None  # something serves now
    if trial.verdict.word == "broken":
        raise deploy.canary_failed(trial)
    show(trial, serving.number, as_json)


def show(trial: Trial, serving: int | None, as_json: bool) -> None:
    """Print how it does. serving: the release that serves all requests now, where that has been decided."""
    if as_json:
        console.print_json(document(trial, serving))
        return
    print(f"{trial.deployment}: release {trial.canary.number} gets {trial.percent} % since {trial.since}")
    print(f"  {trial.verdict.word}: {trial.verdict.why}")
    print(f"  {figures(trial)}")
    if serving is not None:
        print(f"  release {serving} serves all requests now")
    else:
        name = trial.deployment
        print(f"  next: onecat canary {name} --watch; onecat promote {name}; onecat abort {name}")


def end_trial(
    end: Callable[[DeploymentStore, Report], Release],
    forecast: Callable[[Trial], tuple[Release, Release]],
    hosts: Sequence[str] | None,
    config: Path | None,
    name: str | None,
    dry_run: bool,
    as_json: bool,
    schema: str,
) -> None:
    """Settle a canary by hand, and print what serves then.

    Parameters:
        end: does it. forecast: which release would get all requests, and which one would stop.
        schema: of the command's document.
    """
    from onecat import deploy
    from onecat.cli.machines import chosen_hosts, only_host, open_hosts
    from onecat.cli.status import chosen_name

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        store = deploy.find_deployment(only_host(opened), chosen_name(name, config))
        if dry_run:
            show_end(*forecast(deploy.look_at_canary(store)), as_json, schema)
            return
        console.end_like_ctrl_c()
        release = end(store, console.progress)
    show_change(release, True, as_json, schema)


def show_end(serves: Release, stops: Release, as_json: bool, schema: str) -> None:
    """Print how the trial would end. schema: of the command's document."""
    if as_json:
        document = {"deployment": serves.deployment, "serves": serves.number, "stops": stops.number}
        console.print_json({"schema": schema, "changed": False, "dry_run": True, **document})
        return
    print(f"{serves.deployment}: release {serves.number} would get all requests, and release {stops.number} would stop")


def figures(trial: Trial) -> str:
    """What both have answered, in words."""
    parts = []
    for release, found in ((trial.canary, trial.verdict.canary), (trial.stable, trial.verdict.stable)):
        slow = "" if found.p99_seconds is None else f", P99 {found.p99_seconds:.2f} s"
        parts.append(f"release {release.number}: {found.requests} requests, {found.errors} errors{slow}")
    return "; ".join(parts)


def document(trial: Trial, serving: int | None) -> dict[str, Any]:
    """The trial as the `onecat.canary/1` document."""
    from dataclasses import asdict

    verdict = asdict(trial.verdict)
    return {
        "schema": SCHEMA,
        "deployment": trial.deployment,
        "canary": trial.canary.number,
        "stable": trial.stable.number,
        "percent": trial.percent,
        "since": trial.since,
        "verdict": verdict.pop("word"),
        "why": verdict.pop("why"),
        "figures": {"canary": verdict["canary"], "stable": verdict["stable"]},
        "seconds_left": verdict["seconds_left"],
        "serving": serving,
    }
