"""`up`: from a plan to a release that answers well, or back to where we were.

What is done before, around and after the change has modules of its own: `preparing`, `rendering`, `switching`,
`way_back`, `leftovers`.
"""

from __future__ import annotations

import time
from dataclasses import replace

from onecat.deploy import claims
from onecat.deploy.cache_volume import remove_unused
from onecat.deploy.container import home_identity
from onecat.deploy.cut_off import cut_off, is_cut_off, told_when_lost
from onecat.deploy.failures import failure_of
from onecat.deploy.front import Front
from onecat.deploy.hand_edits import tell_hand_edits, write_anew
from onecat.deploy.leftovers import clean_up
from onecat.deploy.preparing import check_before, decide, prepare_run, with_free_port
from onecat.deploy.readiness import healthy
from onecat.deploy.releases import Release
from onecat.deploy.rendering import render
from onecat.deploy.request import Report, Run, UpRequest
from onecat.deploy.servers import server_of
from onecat.deploy.starting import start_release
from onecat.deploy.store import DeploymentStore
from onecat.deploy.strategy import Strategy
from onecat.deploy.switching import drain_release, route, runs, takes_address, traffic_of
from onecat.deploy.way_back import go_back
from onecat.errors import OnecatError
from onecat.hosts import Machine


def up(request: UpRequest, machine: Machine, report: Report = lambda text: None, front: Front | None = None) -> Release:
    """Make the planned server run on a host, answer well, and be reachable; returns its release.

    Where the same plan already runs and is healthy nothing is changed. A running release with another plan serves
    until the new one has answered (blue-green), or is stopped for it and started again when the new one fails
    (recreate); see `onecat.deploy.strategy`.

    Parameters:
        report: receives one line for each step, for a person.
        front: the nginx of several hosts, this one among them; None: nginx runs on this one.

    Raises OnecatError: before anything is changed for what can be known beforehand; with code ROLLED_BACK and the
    cause from the log when the start failed and the state before is restored; NEEDS_PERSON when it could not be.
    KeyboardInterrupt passes through after what was started has been stopped.
    """
    run = check_before(prepare_run(request, machine, report, front))
    with told_when_lost(run), run.store.lock(f"onecat {request.purpose}"):
        run.store.refuse_canary()
        clean_up(run)
        current = run.store.current()
        if current is not None and not request.anew and unchanged(run, current):
            if tell_hand_edits(run.store, report):
                write_anew(run.store, current)
            take_keys(run)
            report(f"release {current.number} already serves this plan and is healthy: nothing to do")
            return current
        return change(run, current)


def check_up(request: UpRequest, machine: Machine, report: Report, front: Front | None = None) -> None:
    """What `up` looks at before anything changes. Raises OnecatError."""
    check_before(prepare_run(request, machine, report, front))


def take_keys(run: Run) -> None:
    """Give nginx the keys of clients as they are now: a change of them takes no new release."""
    if run.traffic is None or run.site is None or run.site.keys is None:
        return
    if run.traffic.let_in(run.site.keys):
        run.report("nginx lets in the clients whose keys stand in proxy.keys_file now")


def unchanged(run: Run, current: Release) -> bool:
    """Whether the current release is what is asked for, serves, and is reached."""
    if current.fingerprint != run.fingerprint or current.outcome != "serving":
        return False
    if server_of(run.machine, current).state().condition != "running":
        return False
    if not healthy(run.machine.reach(current.server_url)):
        return False
    if run.traffic is None or run.site is None:
        return True
    reached = healthy(run.proxy_machine.reach(run.site.endpoint), server_name=run.site.server_name)
    return run.traffic.proxy.running() and reached


def change(run: Run, current: Release | None) -> Release:
    """Put a new release in the place of the current one; the deployment is locked and cleaned up. See `up`."""
    tell_hand_edits(run.store, run.report)
    with claims.claiming(run.machine):
        strategy = decide(run, current)
        run = claims.with_claims(with_free_port(run, strategy), current, strategy)
        if strategy.name != "first":
            run.report(strategy.told)
        release, server = render(run, strategy)
    running = current is not None and runs(run, current)
    # What has crashed goes all the same; what a killed command has stopped for another release does not.
    previous = current if running or (current is not None and _made_way(run, current)) else None
    beside = strategy.name == "blue-green"
    gap_began: float | None = None
    try:
        run.store.audit.record(run.request.purpose, release.number, strategy=strategy.name, origin=run.request.origin)
        if current is not None and not beside:
            gap_began = time.monotonic() if running else None
            _make_way(run, current, running)
        release = start_release(run, release, server)
        server.accept()
        run.store.audit.record("accepted", release.number)
        route(run, release)
        gap = None if gap_began is None else round(time.monotonic() - gap_began, 1)
        accepted = run.store.end(replace(release, gap_seconds=gap), "serving")
        run.store.set_current(release.number)
    except KeyboardInterrupt:
        if _is_current(run.store, release):
            run.report(f"interrupted; release {release.number} already serves and stays")
            raise
        run.report(f"interrupted: stopping release {release.number}")
        go_back(run, release, server, previous, beside)
        raise
    except Exception as failure:  # a fault of onecat's own, too: what served before serves again
        if is_cut_off(run):
            raise cut_off(run, release, previous, beside, failure) from failure
        error = failure_of(release, server, failure)
        go_back(run, release, server, previous, beside, error)
        raise error from failure
    _put_away(run, current, strategy, accepted)
    return accepted


def _made_way(run: Run, current: Release) -> bool:
    """Whether the current release does not run only because it was stopped."""
    stopped = server_of(run.machine, current).state().condition in ("absent", "stopped")
    return stopped and current.outcome == "serving"


def _make_way(run: Run, current: Release, running: bool) -> None:
    """Stop the current release for the new one; nginx answers 503 meanwhile."""
    traffic = traffic_of(run, current)
    if running and traffic is not None:
        run.report(f"nginx answers 503 (Retry-After) from now on; release {current.number} finishes its answers")
        traffic.pause(run.host)
        run.store.audit.record("paused", current.number)
        drain_release(run, current)
    if running:
        run.report(f"stopping release {current.number}")
    server_of(run.machine, current).stop()
    run.store.audit.record("made way", current.number)
    # What shall listen where nginx did, a server or another nginx, cannot wait for that one to go afterwards.
    if traffic is not None and (run.traffic is None or takes_address(run, current)):
        traffic.stop()
        if run.traffic is not None and run.site is not None and running:
            run.traffic.route(run.host, [], run.site)


def _put_away(run: Run, current: Release | None, strategy: Strategy, accepted: Release) -> None:
    """Put away what the accepted release has replaced. What cannot be put away is told and harms nothing."""
    store = run.store
    try:
        store.audit.record("current", accepted.number)
        if current is not None:
            if strategy.name == "blue-green":
                drain_release(run, current)
                run.report(f"stopping release {current.number}")
                server_of(run.machine, current).stop()
            replaced = traffic_of(run, current)
            if replaced is not None and replaced is not run.traffic:
                run.report("stopping the nginx that stood before it")
                replaced.stop()
            store.end(current, "stopped")
        store.prune(run.deployment.rollout.keep_releases)
        if run.plan.container is not None:
            docker_host = run.machine.docker_host(run.request.docker_host)
            home = home_identity(run.machine)
            for name in remove_unused(run.machine, store.releases(), store.name, home, docker_host):
                run.report(f"removed the compiled kernels of an image that no release runs any more ({name})")
    except (OnecatError, OSError) as failure:
        run.report(f"the new release serves, but what it replaced could not be put away: {failure}")
    except KeyboardInterrupt:
        run.report("interrupted; the new release already serves and stays")
        raise


def _is_current(store: DeploymentStore, release: Release) -> bool:
    current = store.current()
    return current is not None and current.number == release.number
