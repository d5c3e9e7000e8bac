"""`onecat down`: stop a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console


def register(app: typer.Typer) -> None:
    app.command("down", help="Stop a deployment: nginx, the server and all its processes.")(down)


def down(
    name: Annotated[str | None, typer.Argument(help="Deployment name.", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.down/1).")] = False,
) -> None:
    from onecat.cli.machines import local_machine
    from onecat.cli.status import chosen_name
    from onecat.deploy import down, find_deployment

    store = find_deployment(local_machine(), chosen_name(name, config))
    stopped = down(store, console.progress)
    if as_json:
        console.print_json({"schema": "onecat.down/1", "deployment": store.name, "changed": stopped})
        return
    print(f"{store.name}: {'stopped' if stopped else 'was not running'}")
