"""Where `rollback` and `restart` work: each host of a deployment with the nginx before it, one after the other."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStore, Forecast, Release
    from onecat.deploy.fleet import HostResult
    from onecat.deploy.front import Front
    from onecat.facts import Facts
    from onecat.hosts import Machine


MaxFailuresOption = Annotated[
    int,
    typer.Option(
        "--max-failures", min=0, metavar="N", help="Of several hosts: how many may fail before the rest are left."
    ),
]


@dataclass(frozen=True)
class Place:
    """A deployment on one host. front: the nginx before the servers of several hosts."""

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
def places(
    hosts: Sequence[str] | None, config: Path | None, name: str | None, max_failures: int
) -> Iterator[tuple[list[Place], list[HostResult]]]:
    """The deployment on each of its hosts, and what became of hosts where it cannot be found, while the block runs.

    Raises OnecatError where that are more than max_failures.
    """
    from onecat.cli.machines import chosen_hosts, open_hosts
    from onecat.cli.status import chosen_name
    from onecat.deploy import DeploymentStore, find_deployment
    from onecat.deploy.fleet import failed
    from onecat.deploy.front import Front
    from onecat.deploy.saved_request import front_of_release

    with contextlib.ExitStack() as opened:
        chosen = opened.enter_context(open_hosts(chosen_hosts(hosts, config, name)))
        machines: dict[str, Machine] = {each.name: each for each in chosen.machines}
        wanted = chosen_name(name, config)
        found, unknown = [], []
        for machine in chosen.machines:
            try:
                store = find_deployment(machine, wanted)
                release = store.current() or store.latest()
                front = None if release is None else front_of_release(machine, release)
                if front is not None and front not in machines:
                    machines[front] = opened.enter_context(open_hosts([front])).machines[0]
                before = None if front is None else Front(DeploymentStore(machines[front], store.name))
            except OnecatError as error:
                unknown.append(failed(machine.name, error))
                if len(unknown) > max_failures:
                    raise
                continue
            found.append(Place(store, before))
        if not found:
            raise next(each.error for each in unknown if each.error is not None)
        yield found, unknown


def repeat(
    command: str,
    hosts: Sequence[str] | None,
    config: Path | None,
    name: str | None,
    forecast: Callable[[Place], Forecast],
    work: Callable[[Place], Release],
    max_failures: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Do the work on each host, one after the other, and print what serves there then.

    Parameters:
        command: as `rollback`. max_failures: on how many hosts it may fail before the rest are left as they are.
    """
    from onecat.cli.changes import show_change, show_forecast

    schema = f"onecat.{command}/1"
    with places(hosts, config, name, max_failures) as (found, unknown):
        if len(found) + len(unknown) > 1:
            if dry_run:
                _show_forecasts(command, found, unknown, forecast, as_json)
            else:
                _repeat_on_several(command, found, unknown, work, max_failures, as_json)
            return
        (place,) = found
        if dry_run:
            show_forecast(forecast(place), as_json, schema)
            return
        console.end_like_ctrl_c()
        with _fleet_lock(command, found):
            before = place.store.current()
            release = work(place)
        show_change(release, before is None or before.number != release.number, as_json, schema)


def _repeat_on_several(
    command: str,
    found: Sequence[Place],
    unknown: Sequence[HostResult],
    work: Callable[[Place], Release],
    max_failures: int,
    as_json: bool,
) -> None:
    from onecat.cli.fleet import print_results
    from onecat.deploy import up_document
    from onecat.deploy.fleet import HostWork, failure_of_fleet, fleet_document, run_in_turn

    def change(place: Place, report: Callable[[str], None]) -> tuple[Release, bool]:
        before = place.store.current()
        release = work(place)
        return release, before is None or before.number != release.number

    def document(release: Release, changed: bool) -> Any:
        return {**up_document(release, changed), "schema": f"onecat.{command}/1", "origin": release.origin}

    console.end_like_ctrl_c()
    name = found[0].store.name
    # Those that serve nothing come first: then the others have more to lean on.
    order = sorted(found, key=lambda place: place.store.current() is not None)
    works = [HostWork(each.store.machine.name, True, functools.partial(change, each)) for each in order]
    with _fleet_lock(command, found):
        done = run_in_turn(
            works, max_failures=max_failures - len(unknown), tell=lambda host, text: console.progress(f"{host}: {text}")
        )
    results = [*sorted(done, key=lambda each: [place.store.machine.name for place in found].index(each.host)), *unknown]
    failure = failure_of_fleet(results, max_failures, name, f"onecat {command}")
    if as_json:
        if failure is None:
            console.print_json(fleet_document(name, results, document))
    else:
        print_results(name, results)
    if failure is not None:
        raise failure


def _fleet_lock(command: str, found: Sequence[Place]) -> contextlib.AbstractContextManager[None]:
    """The lock of the deployment on all of its hosts; none where it has one host."""
    from onecat.deploy.store import FLEET_LOCK

    fronts = [each.front.store for each in found if each.front is not None]
    if not fronts and len(found) < 2:
        return contextlib.nullcontext()
    return (fronts or [found[0].store])[0].lock(f"onecat {command}", FLEET_LOCK)


def _show_forecasts(
    command: str,
    found: Sequence[Place],
    unknown: Sequence[HostResult],
    forecast: Callable[[Place], Forecast],
    as_json: bool,
) -> None:
    """Print what would be done on each host; exit code 1 when it is known to fail on one."""
    from onecat.cli.changes import forecast_lines

    made = {each.store.machine.name: forecast(each) for each in found}
    if as_json:
        console.print_json(
            {
                "schema": "onecat.fleet/1",
                "deployment": found[0].store.name,
                "dry_run": True,
                "hosts": [
                    *({"host": host, command: asdict(each), "error": None} for host, each in made.items()),
                    *({"host": each.host, command: None, "error": str(each.error)} for each in unknown),
                ],
            }
        )
    else:
        for host, each in made.items():
            print("\n".join([f"{host}:", *(f"  {line}" for line in forecast_lines(each))]))
        for result in unknown:
            print(f"{result.host}: {result.error.found if result.error is not None else result.result}")
    if unknown or any(each.obstacle is not None for each in made.values()):
        raise typer.Exit(int(ExitCode.NO))
