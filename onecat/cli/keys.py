"""`onecat keys`: who may ask a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.groups import command_group
from onecat.cli.machines import HostOption


def register(app: typer.Typer) -> None:
    keys = command_group("Who may ask a deployment.")
    keys.command("reload", help="Let nginx let in those whose keys stand in proxy.keys_file now.")(reload)
    app.add_typer(keys, name="keys")


def reload(
    config: Annotated[Path, typer.Option("--config", "-c", help="onecat.yaml or its folder.")] = Path("onecat.yaml"),
    hosts: HostOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.keys/1).")] = False,
) -> None:
    from onecat.cli.machines import open_hosts
    from onecat.cli.up import config_file
    from onecat.config import load_deployment
    from onecat.deploy import find_deployment, reload_keys

    deployment = load_deployment(config_file(config))
    wanted = hosts or [deployment.proxy.on or deployment.hosts[0]]
    with open_hosts(wanted) as opened:
        (machine, *_) = opened.machines
        done = reload_keys(find_deployment(machine, deployment.name), deployment, console.progress)
    if as_json:
        document = {"deployment": deployment.name, "changed": done.changed, "clients": list(done.clients)}
        console.print_json({"schema": "onecat.keys/1", **document})
        return
    already = "" if done.changed else "already "
    print(f"{deployment.name}: nginx {already}lets in {', '.join(done.clients)}")
