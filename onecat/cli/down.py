"""`onecat down`: stop a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.machines import HostOption


def register(app: typer.Typer) -> None:
    app.command("down", help="Stop a deployment: nginx, the server and all its processes.")(down)


def down(
    name: Annotated[str | None, typer.Argument(help="Deployment name.", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    hosts: HostOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.down/1).")] = False,
) -> None:
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy import down, find_deployment

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        wanted = chosen_name(name, config)
        stores = [find_deployment(machine, wanted) for machine in opened.machines]
        stopped = any([down(store, console.progress) for store in stores])
    store = stores[0]
    if as_json:
        console.print_json({"schema": "onecat.down/1", "deployment": store.name, "changed": stopped})
        return
    print(f"{store.name}: {'stopped' if stopped else 'was not running'}")
