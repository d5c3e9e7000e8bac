"""`onecat unlock`: break the lock of a deployment that somebody left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console
from onecat.cli.machines import HostOption
from onecat.errors import OnecatError


def register(app: typer.Typer) -> None:
    app.command("unlock", help="Show who works on a deployment, and end that after a question.")(unlock)


def unlock(
    name: Annotated[str | None, typer.Argument(help="Deployment name.", show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    hosts: HostOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.unlock/1), one a host.")] = False,
) -> None:
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy.lock_breaking import break_lock, held_lock, unlock_document
    from onecat.deploy.store import DeploymentStore

    wanted = chosen_name(name, config)
    if wanted is None:
        raise OnecatError("which deployment?", expected="onecat unlock NAME, or an onecat.yaml here")
    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        for machine in opened.machines:
            store = DeploymentStore(machine, wanted)
            held = held_lock(store)
            place = "" if machine.is_local else f" on {machine.name}"
            if held is not None:
                console.progress(f"{wanted}{place}: {held.told}")
                for pid, command in held.processes:
                    console.progress(f"  held there by pid {pid}: {command[:60]}")
                _confirm(yes)
                break_lock(store, held)
            if as_json:
                console.print_json(unlock_document(wanted, held, held is not None))
            else:
                print(f"{wanted}{place}: {'unlocked' if held is not None else 'nobody holds the lock'}")


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise OnecatError(
            "the lock is held, and nobody is there to be asked whether to break it",
            next_steps=["wait for it to end", "onecat unlock --yes, when its holder is gone for good"],
        )
    if not typer.confirm("End it? What it was doing is taken up by the next command.", err=True):
        raise typer.Exit(1)
