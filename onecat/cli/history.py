"""`onecat history`: who did what to a deployment, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.machines import HostOption


def register(app: typer.Typer) -> None:
    app.command("history", help="Tell who did what to a deployment, and when.")(history)


def history(
    name: Annotated[str | None, typer.Argument(help="Deployment name.", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    hosts: HostOption = None,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=1, help="Only the last so many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.history/1).")] = False,
) -> None:
    from dataclasses import asdict

    from onecat.cli.machines import chosen_hosts, only_host, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy import find_deployment

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        store = find_deployment(only_host(opened), chosen_name(name, config))
        entries = store.audit.entries()[-(lines or 0) :]
    if as_json:
        entries_of = [asdict(entry) for entry in entries]
        console.print_json({"schema": "onecat.history/1", "deployment": store.name, "entries": entries_of})
        return
    from rich.console import Console

    from onecat.render.deployments import history_lines
    from onecat.render.text import print_lines

    screen = Console()
    print_lines(screen, history_lines(entries, width=min(screen.width, 100)))
