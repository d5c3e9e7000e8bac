"""`status`, `logs` and `down`: read and end what `up` has started."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from onecat.deploy import probing
from onecat.deploy.failures import told_lines
from onecat.deploy.hand_edits import tell_hand_edits
from onecat.deploy.proxies import proxy_of
from onecat.deploy.readiness import healthy
from onecat.deploy.releases import Release
from onecat.deploy.server import ServerState
from onecat.deploy.servers import server_of
from onecat.deploy.store import DeploymentStore
from onecat.deploy.supervisor import timestamp
from onecat.deploy.traffic import Traffic
from onecat.errors import ExitCode, OnecatError
from onecat.observe import diagnose

STATUS_SCHEMA = "onecat.status/1"
UP_SCHEMA = "onecat.up/1"
# serving: healthy. unhealthy: its process runs and /health does not answer. restarting: crashed, starts again soon.
# keeps-crashing: given up. lost: the supervisor is dead. proxy-down: the server is healthy, nginx is not.
# unreachable: its host, or the Docker daemon there.
State = Literal[
    "serving",
    "starting",
    "unhealthy",
    "restarting",
    "keeps-crashing",
    "lost",
    "proxy-down",
    "failed",
    "stopped",
    "unreachable",
]
_LISTED = (
    *("outcome", "cause", "created_at", "created_by", "purpose", "origin", "strategy", "served_at"),
    *(
        "start_seconds",
        "gap_seconds",
        "runtime",
        "model",
        "profile",
        "image_id",
        "fingerprint",
        "endpoint",
        "directory",
    ),
)


@dataclass(frozen=True)
class DeploymentStatus:
    """How a deployment is.

    endpoint: address for clients, without /v1; uptime_seconds: since the server's process started; cause: why it is
    not serving, in words; next_steps: commands that lead on. proxy: whose nginx is before it; proxy_pid: its master
    process there.
    """

    name: str
    state: State
    release: int | None = None
    runtime: str | None = None
    pid: int | None = None
    container: str | None = None
    health: str | None = None
    model: str | None = None
    endpoint: str | None = None
    server: str | None = None
    proxy: str | None = None
    proxy_pid: int | None = None
    uptime_seconds: float | None = None
    restarts: int = 0
    crashes_in_a_row: int = 0
    last_exit: str | None = None
    cause: str | None = None
    next_steps: tuple[str, ...] = ()


def status(store: DeploymentStore) -> DeploymentStatus:
    """How the deployment is now. Raises OnecatError when its Docker daemon cannot be reached."""
    current = store.current()
    latest = store.latest()
    if current is None:
        return _without_current(store, latest)
    machine = store.machine
    server = server_of(machine, current)
    seen = server.state()
    health = healthy(machine.reach(current.server_url)) if seen.condition == "running" else False
    proxy = None if current.own_proxy_kind is None else proxy_of(store, current.own_proxy_kind)
    proxy_works = proxy is None or (proxy.running() and (not health or _is_reached(store, current)))
    state = _state(seen, health, proxy_works)
    return DeploymentStatus(
        name=store.name,
        state=state,
        release=current.number,
        runtime=current.runtime,
        pid=seen.pid,
        container=current.container,
        health="ok" if health else "not answering",
        model=current.model,
        endpoint=current.endpoint,
        server=current.server_url,
        proxy=current.proxy_kind,
        proxy_pid=None if proxy is None else proxy.pid(),
        uptime_seconds=_uptime(seen),
        restarts=seen.restarts,
        crashes_in_a_row=seen.crashes_in_a_row,
        last_exit=seen.last_exit,
        cause=_cause(state, seen, told_lines(server) if state != "serving" else []),
        next_steps=_next_steps(state, store.name),
    )


def _is_reached(store: DeploymentStore, release: Release) -> bool:
    return healthy(store.machine.reach(release.endpoint), server_name=release.server_name)


def _without_current(store: DeploymentStore, latest: Release | None) -> DeploymentStatus:
    name = store.name
    if latest is None or store.taken_down() or latest.outcome in ("stopped", "interrupted"):
        served = any(each.served_at is not None for each in store.releases())
        again = (f"onecat restart {name}   (as it was)",) if served else ()
        return DeploymentStatus(name, "stopped", next_steps=("onecat up", *again))
    common: dict[str, Any] = {
        "name": name,
        "release": latest.number,
        "runtime": latest.runtime,
        "model": latest.model,
        "container": latest.container,
    }
    if latest.outcome == "starting":
        seen = server_of(store.machine, latest).state()
        return DeploymentStatus(
            state="starting",
            pid=seen.pid,
            uptime_seconds=_uptime(seen),
            cause="an onecat up is not finished with it, or was ended before it was",
            next_steps=("onecat up",),
            **common,
        )
    return DeploymentStatus(
        state="failed", cause=latest.cause, next_steps=(f"onecat logs {name}", "onecat up"), **common
    )


def _state(seen: ServerState, health: bool, proxy_works: bool) -> State:
    if seen.condition == "running":
        if not health:
            return "unhealthy"
        return "serving" if proxy_works else "proxy-down"
    states: dict[str, State] = {
        "starting": "starting",
        "backing-off": "restarting",
        "keeps-crashing": "keeps-crashing",
        "lost": "lost",
    }
    return states.get(seen.condition, "stopped")


def _cause(state: State, seen: ServerState, lines: list[str]) -> str | None:
    """Why it is not serving: a cause from its log where there is one, before the plain facts."""
    if state == "serving":
        return None
    facts = {
        "lost": "the supervisor was killed, so nothing looks after the server"
        + ("" if seen.pid is None else f", which still runs (pid {seen.pid})"),
        "proxy-down": "the server is healthy, and nginx before it does not pass requests on",
        "unhealthy": "its process runs and /health does not answer (it may still be loading after a restart)",
    }.get(state)
    if facts is not None:
        return facts
    diagnoses = diagnose(lines)
    told = seen.last_exit and f"the server {seen.last_exit}"
    parts = [part for part in (diagnoses[0].cause if diagnoses else None, told) if part]
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts) or None


def _next_steps(state: State, name: str) -> tuple[str, ...]:
    if state == "serving":
        return ()
    if state in ("starting", "restarting", "unhealthy"):
        return (f"onecat logs {name} -f",)
    return (f"onecat logs {name}", "onecat up")


def _uptime(seen: ServerState) -> float | None:
    if seen.started_at is None or seen.pid is None:
        return None
    # Docker writes nanoseconds, which datetime does not read.
    started = datetime.datetime.strptime(seen.started_at[:19], "%Y-%m-%dT%H:%M:%S").replace(
        tzinfo=datetime.timezone.utc
    )
    return round(max(0.0, time.time() - started.timestamp()), 1)


def shown_release(store: DeploymentStore, number: int | None) -> Release:
    """Release `number`, else the current one, else the newest. Raises OnecatError where there is none."""
    if number is not None:
        release = store.load(number)
        if release is None:
            kept = ", ".join(str(found.number) for found in store.releases())
            raise OnecatError(f"deployment {store.name} has no release {number}", expected=f"one of: {kept}")
        return release
    release = store.current() or store.latest()
    if release is None:
        raise OnecatError(f"deployment {store.name} has no release yet", next_steps=["onecat up"])
    return release


def last_lines(store: DeploymentStore, count: int, number: int | None = None) -> list[str]:
    """The last lines of a release's log: of release `number`, else the current one, else the newest."""
    return server_of(store.machine, shown_release(store, number)).last_lines(count)


def follow_log(store: DeploymentStore, count: int, number: int | None = None) -> Iterator[str]:
    """The last lines of that log, then new ones as they come; ends when the server is gone for good."""
    return server_of(store.machine, shown_release(store, number)).follow(count)


def down(store: DeploymentStore, report: Callable[[str], None] = lambda text: None) -> bool:
    """Stop the deployment: nginx, the server and everything it has started. False when nothing ran."""
    with store.lock("onecat down"):
        stopped = False
        left: list[OnecatError] = []
        tell_hand_edits(store, report, "it goes with the deployment")
        live = [release for release in store.releases() if release.live]
        for kind in {each.own_proxy_kind for each in live if each.own_proxy_kind is not None}:
            proxy = proxy_of(store, kind)
            try:
                if proxy.running():
                    report("stopping nginx" if kind == "own" else "taking the site away from nginx")
                    stopped = True
                Traffic(proxy, store.machine, store.directory).stop()
            except OnecatError as error:  # the servers go all the same
                if error.code is ExitCode.UNREACHABLE:
                    raise
                left.append(error)
        probing.remove(store)
        for release in live:
            server = server_of(store.machine, release)
            if server.state().condition not in ("absent", "stopped", "keeps-crashing", "exited"):
                report(f"stopping release {release.number}")
                stopped = True
            server.stop()
            store.end(release, "interrupted" if release.outcome == "starting" else "stopped")
        store.audit.record("down")
        store.set_current(None)
    for failure in left:
        found = f"the servers are stopped, but nginx still has the site: {failure.found}"
        raise failure.told_as(found=found, code=ExitCode.NEEDS_PERSON) from failure
    return stopped


def up_document(release: Release, changed: bool) -> dict[str, Any]:
    """A release as the `onecat.up/1` document. changed: whether `up` had to do anything."""
    return {
        "schema": UP_SCHEMA,
        "deployment": release.deployment,
        "release": release.number,
        "directory": str(release.directory),
        "changed": changed,
        "runtime": release.runtime,
        "service": release.service,
        "container": release.container,
        "model": release.model,
        "endpoint": release.endpoint,
        "base_url": f"{release.endpoint}/v1",
        "server": release.server_url,
        "proxied": release.proxied,
        "protected": release.protected,
        "time": timestamp(time.time()),
    }


def releases_document(store: DeploymentStore) -> dict[str, Any]:
    """The kept releases of a deployment on one host, newest first."""
    current = store.current()
    return {
        "deployment": store.name,
        "host": store.machine.name,
        "current": None if current is None else current.number,
        "releases": [
            {"release": each.number, **{field: getattr(each, field) for field in _LISTED}}
            for each in store.releases()[::-1]
        ],
    }
