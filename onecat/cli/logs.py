"""`onecat logs`: what the server has written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.machines import HostOption


def register(app: typer.Typer) -> None:
    app.command("logs", help="Print the server's log.")(logs)


def logs(
    name: Annotated[str | None, typer.Argument(help="Deployment name.", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines as they come.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many lines.")] = 100,
    release: Annotated[
        int | None, typer.Option("--release", help="Of this release; by default of the current one.")
    ] = None,
    hosts: HostOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print as JSON (onecat.logs/1); with -f one document a line.")
    ] = False,
) -> None:
    import json

    from onecat.cli.machines import chosen_hosts, only_host, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy import find_deployment, follow_log, last_lines

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        store = find_deployment(only_host(opened), chosen_name(name, config))
        if not follow:
            found = list(last_lines(store, lines, release))
            if as_json:
                console.print_json({"schema": "onecat.logs/1", "deployment": store.name, "lines": found})
            else:
                print("".join(f"{line}\n" for line in found), end="")
            return
        for line in follow_log(store, lines, release):
            document = {"schema": "onecat.logs/1", "deployment": store.name, "lines": [line]}
            print(json.dumps(document, ensure_ascii=True) if as_json else line, flush=True)
