"""What commands that change a deployment show: what they would do, and what they did."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.cli.cluster import cluster_lines
from onecat.errors import ExitCode

if TYPE_CHECKING:
    from onecat.deploy import Forecast, Release

COLUMNS = 80
_TOLD_BY_PLAN = ("argv", "plan", "site", "cluster")
NameArgument = Annotated[
    str | None,
    typer.Argument(help="Deployment name; by default that of ./onecat.yaml, or the only one.", show_default=False),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")]


def show_forecast(forecast: Forecast, as_json: bool, schema: str) -> None:
    """Print what a command would do; exit code 1 when it is known to fail. schema: of its document."""
    if as_json:
        console.print_json({"schema": schema, "changed": False, "dry_run": True, **asdict(forecast)})
    else:
        print("\n".join(forecast_lines(forecast)))
        if forecast.cluster is not None:
            print("\n".join(cluster_lines(forecast.cluster)))
        print("would run:  " + shlex.join(forecast.argv))
    if forecast.obstacle is not None:
        raise typer.Exit(int(ExitCode.NO))


def rollout_document(forecast: Forecast) -> dict[str, Any]:
    """How a release would take over, without what a plan says already."""
    return {name: value for name, value in asdict(forecast).items() if name not in _TOLD_BY_PLAN}


def forecast_lines(forecast: Forecast) -> list[str]:
    """How a release would take over, in lines of at most 80 columns."""
    lines = [] if forecast.origin is None else [f"{'as release:':<12}{forecast.origin}"]
    if forecast.replaces is not None:
        if forecast.canary_percent is None:
            lines.append(f"{'replaces:':<12}release {forecast.replaces}")
        else:
            others = f"release {forecast.replaces} keeps the others"
            lines += _row("canary:", f"{forecast.canary_percent} % of the requests; {others}")
        lines += _row("strategy:", f"{forecast.strategy}, since {forecast.why}")
    if forecast.gap:
        what = "requests are answered 503 (Retry-After)" if forecast.proxy is not None else "nobody listens"
        seconds = (
            "its length is not measured yet"
            if forecast.gap_seconds is None
            else f"about {forecast.gap_seconds:.0f} s, as the one before took"
        )
        lines += _row("gap:", f"{what}; {seconds}")
    proxies = {
        "host": "the host's (one file of its configuration)",
        "own": "of this user, its files in onecat's own directory",
        "container": "in a container",
        None: "none; clients reach the server itself",
    }
    lines += _row("nginx:", proxies[forecast.proxy])
    lines += _row("endpoint:", f"{forecast.endpoint}/v1")
    if forecast.obstacle is not None:
        lines += _row("would fail:", forecast.obstacle)
        lines += [line for step in forecast.next_steps for line in _row("  next:", step)]
    return lines


def _row(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=f"{label:<12}", subsequent_indent=" " * 12, break_on_hyphens=False
    )


def show_change(release: Release, changed: bool, as_json: bool, schema: str) -> None:
    """Print what serves now. schema: of the command's document."""
    from onecat.deploy import up_document

    if as_json:
        document: dict[str, Any] = {**up_document(release, changed), "schema": schema, "origin": release.origin}
        console.print_json(document)
        return
    again = f", as release {release.origin} did" if release.origin is not None else ""
    print(f"{release.deployment} release {release.number} serves {release.model} at {release.endpoint}/v1{again}")
