"""Where `rollback` and `restart` work: each host of a deployment with the nginx before it, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.cli import console

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStore, Forecast, Release
    from onecat.deploy.front import Front
    from onecat.facts import Facts
    from onecat.hosts import Machine


@dataclass(frozen=True)
class Place:
    """A deployment on one host. front: the nginx on another host that passes its requests on."""

    store: DeploymentStore
    front: Front | None

    @property
    def facts(self) -> Facts:
        from onecat.cli.machines import facts_of

        return facts_of(self.store.machine)

    @property
    def report(self) -> Callable[[str], None]:
        """Receives lines for a person; of another machine they begin with its name."""
        machine = self.store.machine
        return console.progress if machine.is_local else lambda text: console.progress(f"{machine.name}: {text}")


@contextlib.contextmanager
def places(hosts: Sequence[str] | None, config: Path | None, name: str | None) -> Iterator[list[Place]]:
    """The deployment on each of its hosts, while the block runs. Raises OnecatError where it is not."""
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy import DeploymentStore, find_deployment
    from onecat.deploy.front import Front

    with contextlib.ExitStack() as opened:
        chosen = opened.enter_context(open_hosts(chosen_hosts(hosts, config, name)))
        machines: dict[str, Machine] = {each.name: each for each in chosen.machines}
        wanted = chosen_name(name, config)
        found = []
        for machine in chosen.machines:
            store = find_deployment(machine, wanted)
            release = store.current() or store.latest()
            front = None if release is None or release.front is None else release.front
            if front is not None and front not in machines:
                machines[front] = opened.enter_context(open_hosts([front])).machines[0]
            before = None if front is None else Front(DeploymentStore(machines[front], store.name))
            found.append(Place(store, before))
        yield found


def repeat(
    found: Sequence[Place],
    forecast: Callable[[Place], Forecast],
    work: Callable[[Place], Release],
    dry_run: bool,
    as_json: bool,
    schema: str,
) -> None:
    """Do the work on each host, and print what serves there then; the first host that fails ends it."""
    from onecat.cli.changes import show_change, show_forecast

    if not dry_run:
        console.end_like_ctrl_c()
    for place in found:
        if dry_run:
            show_forecast(forecast(place), as_json, schema)
            continue
        before = place.store.current()
        release = work(place)
        show_change(release, before is None or before.number != release.number, as_json, schema)
