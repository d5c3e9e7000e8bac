"""What a command would do to a deployment, without touching anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.deploy import claims, prerequisites
from onecat.deploy.canary import need_room, need_serving
from onecat.deploy.fingerprint import fingerprint
from onecat.deploy.preparing import check_host, decide, prepare_run, with_free_port
from onecat.deploy.ray_cluster import with_cluster
from onecat.deploy.repeating import repeated_run, restart_target, rollback_target
from onecat.deploy.site import to_document
from onecat.errors import ExitCode, OnecatError
from onecat.planner import ray
from onecat.planner.records import to_json

if TYPE_CHECKING:
    from onecat.deploy.front import Front
    from onecat.deploy.releases import ProxyKind, Release, StrategyName
    from onecat.deploy.request import Run, UpRequest
    from onecat.deploy.store import DeploymentStore
    from onecat.facts import Facts
    from onecat.hosts import Machine


@dataclass(frozen=True)
class Forecast:
    """How a new release would take over.

    strategy, why: see `onecat.deploy.strategy`. replaces: the number of the release that serves now. gap: whether
    requests would be refused meanwhile; gap_seconds: for how long, as measured before. proxy: whose nginx passes
    requests on. origin: the release that would be repeated. argv: the server's command line. site: of nginx.
    canary_percent: the share of requests that it would get beside what serves; None: it takes over.
    obstacle: why it would fail before anything is changed, and next_steps: what to type then; None: nothing is known.
    cluster: of a deployment with `ray`, see `onecat.planner.ray.to_document`.
    """

    strategy: StrategyName
    why: str
    replaces: int | None
    gap: bool
    gap_seconds: float | None
    proxy: ProxyKind | None
    endpoint: str
    origin: int | None
    argv: tuple[str, ...]
    plan: dict[str, Any]
    site: dict[str, Any] | None
    canary_percent: int | None = None
    obstacle: str | None = None
    next_steps: tuple[str, ...] = ()
    cluster: dict[str, Any] | None = None


def forecast_up(request: UpRequest, machine: Machine, canary_percent: int | None = None) -> Forecast:
    """What `up` would do. Raises OnecatError for what is wrong with the request.

    Parameters:
        canary_percent: what is asked for with --canary; None: nothing is.
    """
    with _foreseen():
        run = prepare_run(request, machine, lambda text: None)
    return _forecast(run, canary_percent)


def forecast_rollback(
    store: DeploymentStore, number: int | None, facts: Facts | None, front: Front | None = None
) -> Forecast:
    """What `rollback` would do. Raises OnecatError where there is no such release."""
    with _foreseen():
        run = repeated_run(store, rollback_target(store, number), "rollback", facts, lambda text: None, front)
    return _forecast(run)


def forecast_restart(store: DeploymentStore, facts: Facts | None, front: Front | None = None) -> Forecast:
    """What `restart` would do. Raises OnecatError where nothing has served."""
    with _foreseen():
        run = repeated_run(store, restart_target(store), "restart", facts, lambda text: None, front)
    return _forecast(run)


@contextlib.contextmanager
def _foreseen() -> Iterator[None]:
    """What a command would be refused for is the answer "no" to the question whether it would do."""
    try:
        yield
    except OnecatError as error:
        if error.code is not ExitCode.ROLLED_BACK:
            raise
        raise error.told_as(found=f"it would fail: {error.found}", code=ExitCode.NO) from error


def _is_tried(run: Run) -> bool:
    """Whether this plan is the canary's."""
    tried = run.store.canary()
    if tried is None:
        return False
    entries = run.machine.entries(run.plan.model_directory)
    secret = prerequisites.read_secret(run.secret)
    proxied = run.traffic is not None
    same = fingerprint(run.deployment, run.plan, run.argv, entries, proxied, tried.image_id, secret)
    return same == tried.fingerprint


def _forecast(run: Run, canary_percent: int | None = None) -> Forecast:
    obstacle: OnecatError | None = None
    current: Release | None = run.store.current()
    try:
        run = with_cluster(run)
        if canary_percent is None or not _is_tried(run):
            run.store.refuse_canary()
        check_host(run)
        strategy = decide(run, current)
        if canary_percent is not None:
            need_serving(run)
            need_room(strategy, run)
    except OnecatError as error:
        obstacle = error
        strategy = decide(run, current)
    try:
        run = claims.with_claims(with_free_port(run, strategy), current, strategy)
    except OnecatError as error:
        obstacle = obstacle or error
    serving = current is not None and strategy.name != "first"
    return Forecast(
        strategy=strategy.name,
        why=strategy.why,
        replaces=current.number if current is not None and serving else None,
        gap=strategy.gap,
        gap_seconds=strategy.seconds,
        proxy=None if run.traffic is None else run.traffic.proxy.kind,
        endpoint=f"http://{run.plan.host}:{run.plan.port}" if run.site is None else run.site.endpoint,
        origin=run.request.origin,
        argv=run.argv if run.deployment.ray is None else ray.server_args(run.plan),
        plan=to_json(run.plan),
        site=None if run.site is None else to_document(run.site),
        canary_percent=canary_percent,
        obstacle=None if obstacle is None else obstacle.found,
        next_steps=() if obstacle is None else obstacle.next_steps,
        cluster=None if run.request.cluster is None else ray.to_document(run.request.cluster, run.plan.layout),
    )
