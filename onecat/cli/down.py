"""`onecat down`: stop a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.changes import DryRunOption
from onecat.cli.machines import HostOption

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStore


def register(app: typer.Typer) -> None:
    app.command("down", help="Stop a deployment: nginx, the server and all its processes.")(down)


def down(
    name: Annotated[str | None, typer.Argument(help="Deployment name.", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    hosts: HostOption = None,
    dry_run: DryRunOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print as JSON (onecat.down/1; onecat.fleet/1 of several hosts).")
    ] = False,
) -> None:
    from onecat.cli.fleet import down_on_one, down_on_several
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy import find_deployment

    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        wanted = chosen_name(name, config)
        if dry_run:
            _show_dry_run([find_deployment(machine, wanted) for machine in opened.machines], as_json)
            return
        if len(opened.machines) > 1:
            down_on_several(opened, wanted, as_json)
            return
        store = find_deployment(opened.machines[0], wanted)
        stopped = down_on_one(store)
    if as_json:
        console.print_json({"schema": "onecat.down/1", "deployment": store.name, "changed": stopped})
        return
    print(f"{store.name}: {'stopped' if stopped else 'was not running'}")


def _show_dry_run(stores: list[DeploymentStore], as_json: bool) -> None:
    """Print what would be stopped."""
    live = [(store, each) for store in stores for each in store.releases() if each.live]
    if as_json:
        console.print_json(
            {
                "schema": "onecat.down/1",
                "deployment": stores[0].name,
                "changed": False,
                "dry_run": True,
                "releases": [{"host": store.machine.name, "release": each.number} for store, each in live],
            }
        )
        return
    for store, each in live:
        behind = f", and nginx at {each.endpoint}" if each.proxied else ""
        print(f"{store.name} on {store.machine.name}: would stop release {each.number}{behind}")
    if not live:
        print(f"{stores[0].name}: nothing runs")
