"""A release that is tried with a share of the requests beside the current one, until it takes over or goes.

What is written down in deployment.json is enough for any later command, on any machine, to go on with it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from onecat.deploy import claims
from onecat.deploy.canary_verdict import Verdict, judge, samples
from onecat.deploy.cut_off import cut_off, is_cut_off
from onecat.deploy.failures import failure_of
from onecat.deploy.hand_edits import tell_hand_edits
from onecat.deploy.leftovers import clean_up
from onecat.deploy.preparing import check_before, decide, prepare_run, with_free_port
from onecat.deploy.readiness import healthy
from onecat.deploy.rendering import member_of, render, site_of_release
from onecat.deploy.saved_request import saved_request
from onecat.deploy.servers import server_of
from onecat.deploy.starting import start_release
from onecat.deploy.store import understood
from onecat.deploy.strategy import Strategy
from onecat.deploy.supervisor import timestamp
from onecat.deploy.switching import drain_release, route, runs, traffic_of
from onecat.deploy.way_back import go_back
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Report, Run, UpRequest
    from onecat.deploy.store import DeploymentStore
    from onecat.deploy.traffic import Member
    from onecat.hosts import Machine

LINES_READ = 200_000
"""Lines of the access log that are looked at: more than a day of one request per second."""

HEALTH_TRIES = 3


@dataclass(frozen=True)
class Trial:
    """A canary as it is now. percent: its share; since: when it got it, RFC 3339."""

    deployment: str
    canary: Release
    stable: Release
    percent: int
    since: str
    verdict: Verdict


def start_canary(request: UpRequest, machine: Machine, percent: int, report: Report = lambda text: None) -> Release:
    """Start what is asked for beside the current release and send it a share of the requests.

    Where the same plan is tried already nothing is started; only its share is changed to what is asked for.

    Parameters:
        percent: its share, 1 to 99.

    Raises OnecatError as `up` does, and where there is no room for two releases, no nginx, or none that serves now.
    """
    if len(request.deployment.hosts) > 1:
        raise refused_beside_several()
    run = check_before(prepare_run(request, machine, report))
    with run.store.lock("onecat up --canary"):
        tried = run.store.canary()
        if tried is not None and tried.fingerprint == run.fingerprint:
            return _go_on(run, tried, percent)
        run.store.refuse_canary()
        clean_up(run)
        current = need_serving(run)
        with claims.claiming(run.machine):
            strategy = need_room(decide(run, current), run)
            run = claims.with_claims(with_free_port(run, strategy), current, strategy)
            release, server = render(run, strategy)
        run.store.audit.record("canary", release.number, percent=percent)
        try:
            release = start_release(run, release, server)
            server.accept()
            _share(run, current, release, percent)
            tried = run.store.end(release, "canary")
            run.store.set_current(current.number, _document(tried, percent))
        except KeyboardInterrupt:
            noted = run.store.canary()
            if noted is not None and noted.number == release.number:
                report(f"interrupted; release {release.number} has its share and stays: onecat canary {run.store.name}")
                raise
            report(f"interrupted: stopping release {release.number}")
            go_back(run, release, server, current, beside=True)
            raise
        except Exception as failure:
            if is_cut_off(run):
                raise cut_off(run, release, current, True, failure) from failure
            error = failure_of(release, server, failure)
            go_back(run, release, server, current, beside=True, error=error)
            raise error from failure
    report(f"release {release.number} gets {percent} % of the requests, release {current.number} the others")
    return tried


def refused_beside_several() -> OnecatError:
    """What to tell where a deployment with several servers shall get a canary."""
    return OnecatError(
        "a canary stands beside one server, and this deployment has several hosts",
        expected="--canary with one host",
        next_steps=["onecat up   (host after host, the others serve meanwhile)"],
    )


def _go_on(run: Run, tried: Release, percent: int) -> Release:
    """Go on with a canary of the same plan."""
    document, current = run.store.canary_document(), run.store.current()
    assert document is not None  # there is a canary
    if current is not None and document["share"] != percent / 100:
        _share(run, current, tried, percent)
        run.store.set_current(current.number, {**document, "share": percent / 100})
    run.report(f"release {tried.number} is tried already; it gets {percent} % of the requests")
    return tried


def look_at_canary(store: DeploymentStore) -> Trial:
    """How the canary does. Raises OnecatError when there is none."""
    return _look(_run(store, lambda text: None))


def promote_canary(
    store: DeploymentStore, report: Report = lambda text: None, judged: Release | None = None
) -> Release:
    """Let the canary take over, and end the release that it was tried beside.

    Parameters:
        judged: the canary that is meant; None: the one of now.

    Raises OnecatError.
    """
    with store.lock("onecat promote"):
        run = _run(store, report)
        stable, canary = _both(store, judged)
        _let_run(run, canary)
        route(run, canary)
        accepted = store.end(canary, "serving")
        store.set_current(canary.number)
        store.audit.record("promoted", canary.number)
        if runs(run, stable):
            drain_release(run, stable)
            report(f"stopping release {stable.number}")
        server_of(run.machine, stable).stop()
        store.end(stable, "stopped")
        store.prune(run.deployment.rollout.keep_releases)
        return accepted


def abort_canary(
    store: DeploymentStore,
    report: Report = lambda text: None,
    cause: str | None = None,
    judged: Release | None = None,
) -> Release:
    """End the canary and send all requests to the release that it was tried beside; returns that one.

    Parameters:
        cause: why it goes; None where a person says so. judged: the canary that is meant; None: the one of now.

    Raises OnecatError; NEEDS_PERSON when the stable release does not run either, so that nothing would answer.
    """
    with store.lock("onecat abort"):
        run = _run(store, report)
        stable, canary = _both(store, judged)
        _let_run(run, stable)
        route(run, stable)
        store.audit.record("aborted", canary.number)
        if runs(run, canary):
            drain_release(run, canary)
            report(f"stopping release {canary.number}")
        server_of(run.machine, canary).stop()
        store.set_current(stable.number)
        store.end(canary, "stopped" if cause is None else "failed", cause)
        return stable


def settle_canary(store: DeploymentStore, report: Report = lambda text: None) -> tuple[Trial, Release | None]:
    """Look at the canary once, and promote or abort it where its time has come; the release that serves then, or None.

    Raises OnecatError.
    """
    trial = look_at_canary(store)
    if trial.verdict.word == "holds":
        report(f"release {trial.canary.number} takes over: {trial.verdict.why}")
        return trial, promote_canary(store, report, trial.canary)
    if trial.verdict.word == "broken":
        report(f"release {trial.canary.number} goes: {trial.verdict.why}")
        return trial, abort_canary(store, report, trial.verdict.why, trial.canary)
    return trial, None


def canary_failed(trial: Trial) -> OnecatError:
    """What to tell about a canary that went."""
    return OnecatError(
        f"the canary, release {trial.canary.number}, did not hold: {trial.verdict.why}",
        where=trial.canary.directory,
        details=[f"release {trial.stable.number} serves all requests again"],
        next_steps=[f"onecat logs {trial.deployment} --release {trial.canary.number}"],
        code=ExitCode.ROLLED_BACK,
    )


def _run(store: DeploymentStore, report: Report) -> Run:
    """What the steps work with, from what lies beside the canary. Raises OnecatError when there is none."""
    _, canary = _both(store)
    run = prepare_run(saved_request(store.machine, canary, "up", None), store.machine, lambda text: None)
    return replace(run, report=report)


def _both(store: DeploymentStore, judged: Release | None = None) -> tuple[Release, Release]:
    stable, canary = store.current(), store.canary()
    if canary is not None and judged is not None and canary.number != judged.number:
        raise OnecatError(
            f"release {canary.number} is tried now, and release {judged.number} was looked at",
            next_steps=[f"onecat canary {store.name}"],
            code=ExitCode.ROLLED_BACK,
        )
    if stable is None or canary is None:
        raise OnecatError(
            f"deployment {store.name} has no canary",
            next_steps=["onecat up --canary 10%", f"onecat status {store.name}"],
            code=ExitCode.USAGE,
        )
    return stable, canary


def need_serving(run: Run) -> Release:
    """The current release, which a canary stands beside. Raises OnecatError when none serves, or not behind nginx."""
    current = run.store.current()
    if current is None or not runs(run, current):
        raise OnecatError(
            "nothing serves that a canary could stand beside",
            next_steps=["onecat up   (without --canary)"],
            code=ExitCode.USAGE,
        )
    if run.traffic is None or traffic_of(run, current) is not run.traffic:
        raise OnecatError(
            "a share of the requests can be given only by the nginx that stands before the current release",
            expected="proxy.kind: nginx, and the same nginx for both releases",
            next_steps=["onecat up   (without --canary)"],
            code=ExitCode.USAGE,
        )
    return current


def need_room(strategy: Strategy, run: Run) -> Strategy:
    """The strategy of a canary. Raises OnecatError where two releases cannot run at once."""
    if strategy.name == "blue-green":
        return strategy
    raise OnecatError(
        f"a canary runs beside the current release, and that cannot be: {strategy.why}",
        where="rollout.strategy" if run.deployment.rollout.strategy == "recreate" else run.machine.name,
        next_steps=["onecat up   (without --canary: the current release makes way, with a way back)"],
        code=ExitCode.NO,
    )


def _let_run(run: Run, release: Release) -> None:
    """Raises OnecatError when the release that shall get all requests does not answer."""
    if runs(run, release) and healthy(run.machine.reach(release.server_url)):
        return
    name = run.store.name
    raise OnecatError(
        f"release {release.number} does not answer, so it cannot get all requests",
        where=release.place,
        next_steps=[f"onecat logs {name} --release {release.number}", f"onecat promote {name}", f"onecat abort {name}"],
        code=ExitCode.NEEDS_PERSON,
    )


def _share(run: Run, stable: Release, canary: Release, percent: int) -> None:
    traffic, site = traffic_of(run, canary), site_of_release(run, canary)
    assert traffic is not None  # `need_serving` has seen to it
    assert site is not None
    tell_hand_edits(run.store, run.report)
    traffic.route(run.host, weighted(member_of(run, stable), member_of(run, canary), percent), site)
    run.store.audit.record("routed", canary.number, percent=percent)


def weighted(stable: Member, canary: Member, percent: int) -> list[Member]:
    """Both servers with the smallest whole weights that give the canary `percent` of the requests."""
    divisor = math.gcd(100 - percent, percent)
    return [replace(stable, weight=(100 - percent) // divisor), replace(canary, weight=percent // divisor)]


def _document(canary: Release, percent: int) -> dict[str, object]:
    return {"release": canary.number, "share": percent / 100, "since": timestamp(time.time())}


def _look(run: Run) -> Trial:
    store = run.store
    stable, canary = _both(store)
    with understood(store.machine, store.document):
        document = dict(store.canary_document() or {})
        since, percent = str(document["since"]), round(float(document["share"]) * 100)
        began = _seconds(since)
    traffic = traffic_of(run, canary)
    lines = [] if traffic is None else traffic.proxy.access_lines(LINES_READ)
    running = server_of(run.machine, canary).state().condition == "running"
    verdict = judge(
        samples(lines),
        canary=member_of(run, canary).address,
        stable=member_of(run, stable).address,
        # nginx's log counts whole seconds.
        since=math.floor(began),
        now=time.time(),
        # A busy server may miss one question.
        alive=running and any(healthy(run.machine.reach(canary.server_url)) for _ in range(HEALTH_TRIES)),
        limits=run.deployment.canary,
    )
    return Trial(store.name, canary, stable, percent, since, verdict)


def _seconds(moment: str) -> float:
    return datetime.strptime(moment, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()
