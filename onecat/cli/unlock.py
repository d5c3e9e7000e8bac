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
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.unlock/1), one a lock.")] = False,
) -> None:
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy.lock_breaking import break_lock, held_lock, unlock_document
    from onecat.deploy.store import FLEET_LOCK, LOCK, DeploymentStore, find_deployment

    wanted = chosen_name(name, config)
    if wanted is None:
        raise OnecatError("which deployment?", expected="onecat unlock NAME, or an onecat.yaml here")
    with open_hosts(chosen_hosts(hosts, config, name)) as opened:
        stores = [DeploymentStore(machine, wanted) for machine in opened.machines]
        if all(store.machine.status(store.directory) is None for store in stores):
            find_deployment(opened.machines[0], wanted)  # tells which ones there are
        for store in stores:
            machine = store.machine
            # That of all hosts first: it is taken before those of each.
            held = [found for file in (FLEET_LOCK, LOCK) if (found := held_lock(store, file)) is not None]
            place = "" if machine.is_local else f" on {machine.name}"
            for each in held:
                console.progress(f"{wanted}{place}: {each.told}")
                for pid, command in each.processes:
                    console.progress(f"  held there by pid {pid}: {command[:60]}")
            if held:
                _confirm(yes, f"onecat unlock {wanted}{'' if machine.is_local else ' --host ' + machine.name} --yes")
            for each in held:
                break_lock(store, each)
            if as_json:
                for document in [unlock_document(wanted, each, True) for each in held] or [
                    unlock_document(wanted, None, False)
                ]:
                    console.print_json(document)
            else:
                print(f"{wanted}{place}: {'unlocked' if held else 'nobody holds the lock'}")


def _confirm(yes: bool, command: str) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise OnecatError(
            "the lock is held, and nobody is there to be asked whether to break it",
            next_steps=["wait for it to end", f"{command}   (when its holder is gone for good)"],
        )
    if not typer.confirm("End it? What it was doing is taken up by the next command.", err=True):
        raise typer.Exit(1)
