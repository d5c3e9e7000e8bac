"""Where nginx sends requests: which releases on which hosts get them, and whether the ones before are done.

The members of a site lie in traffic.json beside it, so that another run, or another host of the same deployment,
changes only its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from onecat.deploy.readiness import healthy
from onecat.deploy.site import Site, Upstream, from_document, to_document
from onecat.deploy.store import read_json, write_json
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy.proxies import Proxy
    from onecat.hosts import Machine

TRAFFIC_SCHEMA = "onecat.traffic/1"
_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.1
LONGEST_READ_SECONDS = 60.0
"""client_body_timeout of our sites: so long nginx may wait for the next part of a request."""


@dataclass(frozen=True)
class Member:
    """One server that gets requests. host: which of the deployment's hosts it runs on; address: as nginx reaches it."""

    host: str
    release: int
    address: str
    weight: int = 1


class Traffic:
    """The requests of one deployment.

    Parameters:
        proxy: the nginx they come in at. machine: the host it runs on. directory: of the deployment there.
    """

    def __init__(self, proxy: Proxy, machine: Machine, directory: str) -> None:
        self.proxy = proxy
        self._machine = machine
        self._path = f"{directory}/traffic.json"
        self._workers_before: frozenset[int] = frozenset()

    def members(self) -> tuple[Member, ...]:
        """All servers that get requests now."""
        document = read_json(self._machine, self._path)
        return () if document is None else tuple(Member(**each) for each in document["members"])

    def site(self) -> Site | None:
        """The site that nginx has now, without servers; None when it has none."""
        document = read_json(self._machine, self._path)
        return None if document is None else from_document(document["site"])

    def pause(self, host: str) -> None:
        """Send nothing to servers of `host` any more; with none left every request is answered 503."""
        site = self.site()
        if site is not None:
            self.route(host, [], site)

    def route(self, host: str, members: Sequence[Member], site: Site) -> None:
        """Send the share of `host` to these servers of it from now on; what is sent to other hosts stays.

        Parameters:
            site: what else nginx shall do, without servers.

        With no server at all every request is answered 503. Raises OnecatError when nginx refuses or does not answer;
        then it serves as before.
        """
        before, site_before = self.members(), self.site()
        after = (*(each for each in before if each.host != host), *members)
        self._workers_before = self.proxy.workers()
        self.proxy.apply(with_members(site, after))
        try:
            self._wait_until_it_answers(site.endpoint, bool(after))
        except OnecatError:
            if site_before is not None:
                self.proxy.apply(with_members(site_before, before))
            else:
                self.proxy.remove()
            raise
        document = {
            "schema": TRAFFIC_SCHEMA,
            "site": to_document(site),
            "members": [asdict(each) for each in after],
        }
        write_json(self._machine, self._path, document)

    def stop(self) -> None:
        """Answer nobody any more."""
        self.proxy.remove()
        self._machine.remove(self._path)

    def finished(self) -> bool:
        """Whether nginx has finished all requests that it had when the route was changed last."""
        return not self._workers_before & self.proxy.workers()

    def _wait_until_it_answers(self, endpoint: str, has_servers: bool) -> None:
        limit = time.monotonic() + _ANSWER_SECONDS
        url = self._machine.reach(endpoint)
        while not (healthy(url) if has_servers else self.proxy.running()):
            if time.monotonic() > limit:
                raise OnecatError(
                    f"nginx does not pass requests on within {_ANSWER_SECONDS:.0f} s",
                    where=endpoint,
                    next_steps=["read its error log; it lies beside its access log"],
                    code=ExitCode.ROLLED_BACK,
                )
            time.sleep(_POLL_SECONDS)


def with_members(site: Site, members: Sequence[Member]) -> Site:
    """The site that sends requests to these servers."""
    return replace(site, upstreams=tuple(Upstream(each.address, each.weight) for each in members))


def drain(requests_of_old: Callable[[], float | None], traffic: Traffic | None, limit_seconds: float) -> float | None:
    """Wait until the old server has nothing left to answer.

    Parameters:
        requests_of_old: running and waiting requests by its own count; None when it does not tell.
        traffic: what it got requests through; None when clients asked it themselves.

    Returns the seconds it took; None when requests were still running after limit_seconds.
    """
    began = time.monotonic()
    idle_since: float | None = None
    while True:
        now = time.monotonic()
        counted = requests_of_old()
        idle_since = (now if idle_since is None else idle_since) if counted == 0 else None
        passed_on = traffic is None or traffic.finished()
        # An old worker of an nginx with other sites may live on for their sake; ours are over when it could not even be
        # reading one from a client any more.
        given_up_waiting = idle_since is not None and now - idle_since > LONGEST_READ_SECONDS
        if (passed_on and counted in (0, None)) or given_up_waiting:
            return now - began
        if now - began >= limit_seconds:
            return None
        time.sleep(_POLL_SECONDS)
