"""`onecat status`: how deployments are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.machines import HostOption

if TYPE_CHECKING:
    from onecat.deploy import Overview

NAME_HELP = "Deployment name; by default that of --config, of ./onecat.yaml, or all there are."


def register(app: typer.Typer) -> None:
    app.command("status", help="Tell how deployments are; exit code 1 when one does not serve.")(status)


def status(
    name: Annotated[str | None, typer.Argument(help=NAME_HELP, show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    hosts: HostOption = None,
    watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again and again, and show what has changed, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Between two looks of --watch.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.status/1).")] = False,
) -> None:
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.deploy import overviews, overviews_document, overviews_exit

    wanted = chosen_name(name, config)
    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        several = len(opened.machines) > 1

        def look() -> list[Overview]:
            return overviews(opened.machines, wanted, opened.desk)

        if watching:
            from onecat.cli.watch import watch_deployments

            code = watch_deployments(
                look,
                lambda found: int(overviews_exit(found)),
                several_hosts=several,
                interval=interval,
                as_json=as_json,
            )
            raise typer.Exit(code)
        found = look()
    if as_json:
        console.print_json(overviews_document(found))
    else:
        _print(found, several)
    raise typer.Exit(int(overviews_exit(found)))


def _print(found: list[Overview], several_hosts: bool) -> None:
    from rich.console import Console

    from onecat.render.deployments import status_lines
    from onecat.render.text import Line, print_lines

    screen = Console()
    for number, each in enumerate(found):
        if number:
            print_lines(screen, [Line("")])
        print_lines(screen, status_lines(each, several_hosts=several_hosts, width=min(screen.width, 100)))


def chosen_name(name: str | None, config: Path | None) -> str | None:
    """The deployment a command is about: NAME, else the one in --config or ./onecat.yaml; None where none is named."""
    from onecat.cli.up import config_file

    if name is not None:
        return name
    path = config_file(config) if config is not None else Path("onecat.yaml")
    if config is None and not path.exists():
        return None
    from onecat.config import load_deployment

    return load_deployment(path).name
