"""`onecat diff`: what `up` would change, and what was changed on the host by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.cli.machines import HostOption
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy import Comparison
    from onecat.deploy.front import Front
    from onecat.hosts import Machine


def register(app: typer.Typer) -> None:
    app.command("diff", help="Tell what up would change, and what was changed on hosts by hand; exit code 1 for any.")(
        diff
    )


def diff(
    name: Annotated[
        str | None,
        typer.Argument(help="Deployment name; without onecat.yaml only hand edits are told.", show_default=False),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml to compare with.")] = None,
    hosts: HostOption = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FLAG=VALUE", help="As of onecat up; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.diff/1).")] = False,
) -> None:
    from onecat.cli.fleet import front_of
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.config import load_deployment
    from onecat.deploy.front import front_host

    path = _config_of(name, config)
    if path is None and settings:
        raise OnecatError("--set changes what an onecat.yaml says", next_steps=["onecat diff --config onecat.yaml"])
    chosen = chosen_hosts(hosts, config, name)
    deployment = None if path is None else load_deployment(path)
    # The nginx before several hosts is asked, too, where only others are looked at.
    proxied_by = None if deployment is None else front_host(deployment)
    with open_hosts([*chosen, *([] if proxied_by is None else [proxied_by])]) as opened:
        front = None if deployment is None else front_of(opened, deployment)
        machines = [each for each in opened.machines if each.name in chosen]
        found = [_compared(machine, path, name, settings or [], front) for machine in machines]
    document = _document(found)
    if as_json:
        console.print_json(document)
    else:
        _print(document)
    raise typer.Exit(int(ExitCode.FINE if all(each.same for each in found) else ExitCode.NO))


def _config_of(name: str | None, config: Path | None) -> Path | None:
    """The onecat.yaml to compare with: --config, or the one that lies here where NAME is its deployment's."""
    from onecat.cli.up import config_file
    from onecat.config import load_deployment

    if config is not None:
        path = config_file(config)
        found = load_deployment(path).name
        if name not in (None, found):
            raise OnecatError(f"{path} is of deployment {found}", expected=f"that of {name}")
        return path
    path = Path("onecat.yaml")
    return path if path.exists() and name in (None, load_deployment(path).name) else None


def _compared(
    machine: Machine, config: Path | None, name: str | None, settings: list[str], front: Front | None
) -> Comparison:
    from onecat.cli.plan import flag_settings
    from onecat.cli.up import prepare
    from onecat.deploy import compare_deployment, find_deployment, prepare_run

    if config is None:
        return compare_deployment(None, find_deployment(machine, name))
    run = prepare_run(prepare(config, {}, flag_settings(settings), machine), machine, lambda text: None, front)
    return compare_deployment(run, run.store)


def _document(found: list[Comparison]) -> dict[str, Any]:
    """The onecat.diff/1 document, without secrets: lines of files and environments may hold some."""
    from onecat.deploy import comparison_document
    from onecat.observe.secrets import without_secrets

    document = {"schema": "onecat.diff/1", "deployments": [comparison_document(each) for each in found]}
    for each in document["deployments"]:
        assert isinstance(each, dict)
        for difference in (*each["changes"], *each["drift"]):
            difference["diff"] = [without_secrets(line) for line in difference["diff"]]
    return document


def _print(document: dict[str, Any]) -> None:
    from rich.console import Console

    from onecat.render.comparisons import comparison_lines
    from onecat.render.text import print_lines

    several = len(document["deployments"]) > 1
    screen = Console()
    for each in document["deployments"]:
        print_lines(screen, comparison_lines(each, several_hosts=several, width=min(screen.width, 100)))
