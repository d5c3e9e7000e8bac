"""What a command left that did not live to its end: killed, or cut off from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.deploy.server import RUNNING
from onecat.deploy.servers import server_of
from onecat.deploy.switching import drain_release, gets_requests, route, runs, traffic_of

if TYPE_CHECKING:
    from onecat.deploy.request import Run


def clean_up(run: Run) -> None:
    """Finish what was left; the deployment must be locked.

    Releases that may run and are neither the current one nor its canary are ended, once they have finished what they
    were asked; nginx sends requests to the current one if that runs.
    """
    store = run.store
    current, canary = store.current(), store.canary()
    kept = {each.number for each in (current, canary) if each is not None}
    left = [each for each in store.releases() if each.live and each.number not in kept]
    routed = {each.number for each in left if gets_requests(run, each)}
    cut_off = current is not None and (traffic := traffic_of(run, current)) is not None and traffic.cut_off()
    if current is not None and (left or (cut_off and canary is None)) and runs(run, current):
        route(run, current)
    for release in left:
        server = server_of(run.machine, release)
        running = server.state().condition in RUNNING
        if release.outcome == "starting" or running:
            run.report(f"stopping release {release.number}, whose command was ended before it was done")
        if running and (release.outcome == "serving" or release.number in routed):
            drain_release(run, release)
        server.stop()
        store.end(release, "interrupted" if release.outcome == "starting" else "stopped")
