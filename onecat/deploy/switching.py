"""Which release gets the requests of a deployment: the steps that every change of releases is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.deploy.claims import listening
from onecat.deploy.hand_edits import tell_hand_edits
from onecat.deploy.proxies import proxy_of
from onecat.deploy.rendering import member_of, site_of_release
from onecat.deploy.requests_in_flight import requests_in_flight
from onecat.deploy.server import RUNNING
from onecat.deploy.servers import server_of
from onecat.deploy.traffic import Traffic, drain

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run


def runs(run: Run, release: Release) -> bool:
    """Whether a release's server runs, or would run again by itself."""
    return server_of(run.machine, release).state().condition in RUNNING


def traffic_of(run: Run, release: Release) -> Traffic | None:
    """The requests that a release gets through nginx; None for one without."""
    if release.proxy_kind is None or (release.front is not None and run.front is None):
        return None
    if run.traffic is not None and run.traffic.proxy.kind == release.proxy_kind:
        return run.traffic
    if release.front is not None and run.front is not None:
        return run.front.traffic(run.host, release.proxy_kind)
    return Traffic(proxy_of(run.store, release.proxy_kind), run.machine, run.store.directory)


def takes_address(run: Run, release: Release) -> bool:
    """Whether another kind of nginx than that before `release` shall listen where that one does."""
    traffic = traffic_of(run, release)
    if traffic is None or run.site is None or run.traffic is None or traffic.proxy.kind == run.traffic.proxy.kind:
        return False
    site = traffic.site()
    return site is not None and listening(site.listen).overlaps(listening(run.site.listen))


def gets_requests(run: Run, release: Release) -> bool:
    """Whether nginx sends requests to a release, or may do so because a change was cut off."""
    traffic = traffic_of(run, release)
    if traffic is None:
        return False
    return traffic.cut_off() or any(
        each.release == release.number and each.host == run.host for each in traffic.members()
    )


def route(run: Run, release: Release) -> None:
    """Send requests to this release alone, if nginx does not yet. Raises OnecatError or OSError."""
    traffic, site = traffic_of(run, release), site_of_release(run, release)
    if traffic is None or site is None:
        return
    wanted = member_of(run, release)
    if traffic.serves(run.host, [wanted], site):
        return
    tell_hand_edits(run.store, run.report)
    traffic.route(run.host, [wanted], site)
    run.store.audit.record("routed", release.number)
    run.report(f"nginx sends requests to release {release.number}")


def drain_release(run: Run, release: Release) -> None:
    """Wait until a release that gets no new requests has finished those it has, for rollout.drain_seconds at most."""
    url, limit = run.machine.reach(release.server_url), run.deployment.rollout.drain_seconds
    run.store.audit.record("draining", release.number)
    took = drain(lambda: requests_in_flight(url), traffic_of(run, release), limit)
    if took is None:
        run.report(f"release {release.number} still answers after {limit} s (rollout.drain_seconds): it is stopped now")
