"""What a command left that did not live to its end: killed, or cut off from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.deploy.server import RUNNING
from onecat.deploy.servers import server_of
from onecat.deploy.switching import drain_release, gets_requests, route, runs, traffic_of

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run


def clean_up(run: Run) -> None:
    """Finish what was left; the deployment must be locked.

    Where the current release runs, nginx sends requests to it, and releases that may run and are neither it nor its
    canary are ended, once they have finished what they were asked. Where it does not run, and a release that was
    accepted already gets the requests, that one becomes the current one.
    """
    store = run.store
    current, canary = store.current(), store.canary()
    serving = current is not None and runs(run, current)
    if not serving:
        current = _finished(run, current) or current
    kept = {each.number for each in (current, canary) if each is not None}
    left = [each for each in store.releases() if each.live and each.number not in kept]
    routed = {each.number for each in left if gets_requests(run, each)}
    cut_off = current is not None and (traffic := traffic_of(run, current)) is not None and traffic.cut_off()
    if current is not None and serving and (left or (cut_off and canary is None)):
        route(run, current)
    for release in left:
        server = server_of(run.machine, release)
        running = server.state().condition in RUNNING
        if release.outcome == "starting" or running:
            run.report(f"stopping release {release.number}, whose command was ended before it was done")
        if not serving and release.number in routed:
            _refuse(run, release)
        if running and (release.outcome == "serving" or release.number in routed):
            drain_release(run, release)
        server.stop()
        _stop_its_nginx(run, release, current)
        store.end(release, "interrupted" if release.outcome == "starting" else "stopped")


def _finished(run: Run, current: Release | None) -> Release | None:
    """The release that was accepted and gets the requests, made the current one; None when there is none."""
    number = 0 if current is None else current.number
    for release in run.store.releases():
        traffic = traffic_of(run, release)
        if release.number <= number or not release.live or traffic is None or traffic.cut_off():
            continue
        if gets_requests(run, release) and runs(run, release):
            run.report(f"release {release.number} had taken over already: it stays")
            ended = run.store.end(release, "serving")
            run.store.set_current(release.number)
            return ended
    return None


def _stop_its_nginx(run: Run, release: Release, current: Release | None) -> None:
    """Stop the nginx before a release that has ended, where it is of a kind that nobody else needs."""
    traffic = traffic_of(run, release)
    needed = {
        None if current is None else current.proxy_kind,
        None if run.traffic is None else run.traffic.proxy.kind,
    }
    if traffic is not None and traffic.proxy.kind not in needed:
        run.report("stopping the nginx that stood before it")
        traffic.stop()


def _refuse(run: Run, release: Release) -> None:
    """Let nginx answer 503 in place of a release that ends, and that nothing replaces yet."""
    traffic = traffic_of(run, release)
    if traffic is not None and traffic.proxy.running():
        traffic.pause(run.host)
