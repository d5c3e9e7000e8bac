"""`onecat up` and `onecat down` for a deployment on several hosts."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onecat.cli import console
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.cli.machines import Hosts
    from onecat.config import Deployment
    from onecat.deploy import DeploymentStore, Release, UpRequest
    from onecat.deploy.fleet import HostResult
    from onecat.deploy.front import Front
    from onecat.hosts import Machine

_WORDS = {
    "up": "serves release",
    "down": "stopped",
    "unchanged": "already serves release",
    "failed": "failed",
    "unreachable": "cannot be reached",
    "left": "not begun, as before",
}


def is_fleet(deployment: Deployment) -> bool:
    """Whether each of several hosts has a server of its own."""
    return len(deployment.hosts) > 1 and deployment.ray is None


def front_of(hosts: Hosts, deployment: Deployment) -> Front | None:
    """The nginx before the servers of all hosts; None where each is asked by clients itself."""
    from onecat.deploy import DeploymentStore
    from onecat.deploy.front import Front, front_host

    name = front_host(deployment)
    return None if name is None else Front(DeploymentStore(hosts.of(name), deployment.name))


def up_on_several(
    hosts: Hosts,
    deployment: Deployment,
    prepare: Callable[[Machine], UpRequest],
    max_failures: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring a deployment up on all of its hosts and print what came of each.

    Everything that can be known to fail is looked for on all hosts before anything changes on one. Raises OnecatError
    when more than max_failures hosts failed.
    """
    from onecat import deploy
    from onecat.deploy import probing
    from onecat.deploy.fleet import HostWork, failure_of_fleet, fleet_document, run_fleet
    from onecat.deploy.front import address_of
    from onecat.deploy.store import FLEET_LOCK

    for machine in hosts.machines:
        address_of(deployment, machine)
    front = front_of(hosts, deployment)
    requests: dict[str, UpRequest] = {}

    def check(machine: Machine, report: Callable[[str], None]) -> tuple[Release, bool]:
        request = prepare(machine)
        report(f"{deployment.model.path} is whole; looking at the host")
        if dry_run:
            tell_image(request, machine, report)
        else:
            deploy.check_up(request, machine, report, front)
        requests[machine.name] = request
        return None, False  # type: ignore[return-value] # nothing was made yet

    def bring_up(machine: Machine, report: Callable[[str], None]) -> tuple[Release, bool]:
        before = deploy.DeploymentStore(machine, deployment.name).current()
        release = deploy.up(requests[machine.name], machine, report, front)
        return release, before is None or before.number != release.number

    console.end_like_ctrl_c()
    run = functools.partial(run_fleet, max_failures=max_failures, desk=hosts.desk, tell=_tell)
    checks = [HostWork(each.name, False, functools.partial(check, each)) for each in hosts.machines]
    checked = run(checks, at_once=1)
    failure = failure_of_fleet(checked, max_failures, deployment.name)
    if failure is not None:
        raise failure
    fit = [each for each in hosts.machines if each.name in requests]
    if dry_run:
        _show_plan(hosts, deployment, requests, front, as_json)
        return
    where = front.store if front is not None else deploy.DeploymentStore(fit[0], deployment.name)
    with where.lock("onecat up", FLEET_LOCK):
        works = [
            HostWork(
                each.name,
                deploy.DeploymentStore(each, deployment.name).current() is not None,
                functools.partial(bring_up, each),
            )
            for each in fit
        ]
        done = {each.host: each for each in run(works, at_once=deployment.rollout.hosts_at_once)}
        if front is not None and (why := probing.missing(front.store)) is not None:
            _tell(front.store.machine.name, f"nginx notices a host that fails by failed requests only: {why}")
    results = [done.get(each.host, each) for each in checked]
    failure = failure_of_fleet(results, max_failures, deployment.name)
    if as_json:
        if failure is None:
            console.print_json(fleet_document(deployment.name, results, deploy.up_document))
    else:
        _print(deployment, results)
    if failure is not None:
        raise failure


def tell_image(request: UpRequest, machine: Machine, report: Callable[[str], None]) -> None:
    """Say what `up` would do for an image that another host lacks."""
    from onecat.deploy.images_transfer import image_forecast

    container = request.plan.container
    told = None if container is None else image_forecast(machine, request.docker_host, container.image)
    if told is not None:
        report(told)


def down_on_several(hosts: Hosts, name: str | None, as_json: bool) -> None:
    """Stop a deployment on several hosts, or on some of them, and print what came of each.

    nginx goes first, or stops sending requests to a host: nobody is sent to a server that is gone. A host that fails
    keeps no other one from being stopped. Raises OnecatError when one did.
    """
    from onecat.deploy import down, find_deployment
    from onecat.deploy.fleet import DOWN, HostWork, failed, failure_of_fleet, run_in_turn
    from onecat.deploy.store import FLEET_LOCK

    stores, fronts, unknown = [], {}, []
    for machine in hosts.machines:
        try:
            store = find_deployment(machine, name)
            fronts[machine.name] = _front_of_release(store)
        except OnecatError as error:
            unknown.append(failed(machine.name, error))
        else:
            stores.append(store)
    if not stores:
        raise next(each.error for each in unknown if each.error is not None)
    names = {store.machine.name for store in stores}

    def stop(store: DeploymentStore, report: Callable[[str], None]) -> tuple[None, bool]:
        if fronts[store.machine.name] not in (None, *names):
            with _front_if_reached(store) as front:
                _leave(store, front)
        return None, down(store, report)

    ordered = sorted(stores, key=lambda store: fronts[store.machine.name] is not None)
    works = [HostWork(store.machine.name, True, functools.partial(stop, store)) for store in ordered]
    with _front_of_all(stores, fronts) as where, where.lock(DOWN, FLEET_LOCK):
        done = {each.host: each for each in run_in_turn(works, max_failures=len(works), tell=_tell, done="down")}
    done |= {each.host: each for each in unknown}
    results = [done[machine.name] for machine in hosts.machines]
    show_results(stores[0].name, results, as_json)
    failure = failure_of_fleet(results, 0, stores[0].name, DOWN)
    if failure is not None:
        raise failure


@contextlib.contextmanager
def _front_of_all(stores: Sequence[DeploymentStore], fronts: dict[str, str | None]) -> Iterator[DeploymentStore]:
    """The deployment on the host that its nginx runs on, which has the lock of all; else on the first one."""
    name = next((each for each in fronts.values() if each is not None), None)
    here = next((store for store in stores if name in (None, store.machine.name)), None)
    if here is not None:
        yield here
        return
    with _front_if_reached(next(store for store in stores if fronts[store.machine.name] == name)) as front:
        yield stores[0] if front is None else front.store


def show_results(
    name: str,
    results: Sequence[HostResult],
    as_json: bool,
    document: Callable[[Release, bool], Any] | None = None,
) -> None:
    """Print what became of each host. document: of one release; None: that of `up`."""
    from onecat.deploy import up_document
    from onecat.deploy.fleet import fleet_document

    if as_json:
        console.print_json(fleet_document(name, results, document or up_document))
    else:
        print_results(name, results)


def _front_of_release(store: DeploymentStore) -> str | None:
    current = store.current()
    return None if current is None else current.front


@contextlib.contextmanager
def front_of_store(store: DeploymentStore) -> Iterator[Front | None]:
    """The nginx on another host that stands before a deployment's server on its host; None where it is its own."""
    from onecat.cli.machines import open_hosts
    from onecat.deploy import DeploymentStore
    from onecat.deploy.front import Front

    name = _front_of_release(store)
    if name is None:
        yield None
        return
    with open_hosts([name]) as opened:
        yield Front(DeploymentStore(opened.machines[0], store.name))


@contextlib.contextmanager
def _front_if_reached(store: DeploymentStore) -> Iterator[Front | None]:
    """The nginx on another host, as `front_of_store`; one whose host is gone keeps no server from being stopped."""
    with contextlib.ExitStack() as opened:
        try:
            front = opened.enter_context(front_of_store(store))
            if front is not None:
                front.store.exists()
        except OnecatError as error:
            if error.code != ExitCode.UNREACHABLE:
                raise
            name = str(_front_of_release(store))
            _tell(name, f"cannot be reached ({error.found}); its nginx may go on asking {store.machine.name} in vain")
            front = None
        yield front


def down_on_one(store: DeploymentStore) -> bool:
    """Stop a deployment on one host, be it one of several; returns whether anything ran."""
    from onecat.deploy import down
    from onecat.deploy.store import FLEET_LOCK

    machine = store.machine
    report = console.progress if machine.is_local else functools.partial(_tell, machine.name)
    with _front_if_reached(store) as front:
        if front is None:
            return down(store, report)
        with front.store.lock("onecat down", FLEET_LOCK):
            _leave(store, front)
            return down(store, report)


def _leave(store: DeploymentStore, front: Front | None) -> None:
    """Let the nginx on another host send nothing to this one any more."""
    current = store.current()
    if front is None or current is None or current.proxy_kind is None:
        return
    front.traffic(store.machine.name, current.proxy_kind).stop()
    _tell(front.store.machine.name, f"nginx sends nothing to {store.machine.name} any more")


def _tell(host: str, text: str) -> None:
    console.progress(f"{host}: {text}")


def print_results(name: str, results: Sequence[HostResult]) -> None:
    """Print a line for each host."""
    width = max(len(each.host) for each in results)
    print(f"{name} on {len(results)} hosts:")
    for each in results:
        number = f" {each.release.number}" if each.release is not None else ""
        why = f": {each.error.found}" if each.error is not None else ""
        words = "was not running" if each.result == "unchanged" and each.release is None else _WORDS[each.result]
        print(f"  {each.host:<{width}}  {words}{number}{why}")


def _print(deployment: Deployment, results: Sequence[HostResult]) -> None:
    print_results(deployment.name, results)
    endpoint = next((each.release.endpoint for each in results if each.release is not None), None)
    if endpoint is not None and deployment.proxy.kind == "nginx":
        print(f"  clients: {endpoint}/v1 on {deployment.proxy.on or deployment.hosts[0]}")
    print("  next:    onecat status; onecat down")


def _show_plan(
    hosts: Hosts, deployment: Deployment, requests: dict[str, UpRequest], front: Front | None, as_json: bool
) -> None:
    """Print in which order hosts would be worked on."""
    from onecat.deploy import DeploymentStore
    from onecat.deploy.fleet import HostWork, batches

    def nothing(report: Callable[[str], None]) -> tuple[Release, bool]:
        raise AssertionError

    works = [
        HostWork(each.name, DeploymentStore(each, deployment.name).current() is not None, nothing)
        for each in hosts.machines
        if each.name in requests
    ]
    order = [[each.host for each in batch] for batch in batches(works, deployment.rollout.hosts_at_once)]
    nginx = None if front is None else front.store.machine.name
    if as_json:
        console.print_json(
            {"schema": "onecat.fleet/1", "deployment": deployment.name, "dry_run": True, "order": order, "nginx": nginx}
        )
        return
    for number, batch in enumerate(order, start=1):
        print(f"step {number}: {', '.join(batch)}")
    print(f"nginx: on {nginx}" if nginx else "nginx: none, clients ask each host")
