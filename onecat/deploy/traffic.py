"""Where nginx sends requests: which releases on which hosts get them, and whether the ones before are done.

The members of a site lie in traffic-KIND.json, KIND that of its nginx, so that another run, or another host of the same
deployment, changes only its own; and where another kind of nginx takes over, each knows what it serves.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from onecat.deploy.readiness import healthy
from onecat.deploy.short_lock import short_lock
from onecat.deploy.site import Site, Upstream, from_document, to_document, with_keys
from onecat.deploy.store import read_json, understood, write_json
from onecat.deploy.written_files import installed_files
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy.client_keys import ClientKeys
    from onecat.deploy.proxies import Proxy
    from onecat.hosts import Machine

TRAFFIC_SCHEMA = "onecat.traffic/1"
_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.1
# Longer than a reload of nginx may take, and the way back from it.
_CHANGE_SECONDS = 120.0
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

    Each change is made under a lock: several hosts of a deployment, and `onecat keys`, change the same nginx.

    Parameters:
        proxy: the nginx they come in at. machine: the host it runs on. directory: of the deployment there.
    """

    def __init__(self, proxy: Proxy, machine: Machine, directory: str) -> None:
        self.proxy = proxy
        self._machine = machine
        self._directory = directory
        self._path = f"{directory}/traffic-{proxy.kind}.json"

    def members(self) -> tuple[Member, ...]:
        """All servers that get requests now."""
        document = self._document()
        with understood(self._machine, self._path):
            return () if document is None else tuple(Member(**each) for each in document["members"])

    def site(self) -> Site | None:
        """The site that nginx has now, without servers; None when it has none."""
        document = self._document()
        with understood(self._machine, self._path):
            return None if document is None else from_document(document["site"])

    def installed(self) -> dict[str, dict[str, str | None]]:
        """nginx's files as they were written last, by path; see `onecat.deploy.written_files`."""
        document = self._document()
        return (document or {}).get("files") or {}

    def cut_off(self) -> bool:
        """Whether a change of the route was begun and not ended: then nginx may serve by the old one or the new one."""
        document = self._document()
        return bool((document or {}).get("changing"))

    def serves(self, host: str, members: Sequence[Member], site: Site) -> bool:
        """Whether nginx runs and already sends the share of `host` to these servers by this site."""
        ours = [each for each in self.members() if each.host == host]
        return ours == list(members) and self.site() == site and not self.cut_off() and self.proxy.running()

    def pause(self, host: str) -> None:
        """Send nothing to servers of `host` any more; with none left every request is answered 503."""
        with self._changing():
            site = self.site()
            if site is not None:
                self._route(host, [], site)

    def route(self, host: str, members: Sequence[Member], site: Site) -> None:
        """Send the share of `host` to these servers of it from now on; what is sent to other hosts stays.

        Parameters:
            site: what else nginx shall do, without servers.

        With no server at all every request is answered 503. Raises OnecatError when nginx refuses or does not answer;
        then it serves as before.
        """
        with self._changing():
            self._route(host, members, site)

    def _route(self, host: str, members: Sequence[Member], site: Site) -> None:
        before, site_before = self.members(), self.site()
        after = (*(each for each in before if each.host != host), *members)
        workers = self.proxy.workers()
        self._write(site_before or site, before, workers, changing=True)
        try:
            self.proxy.apply(with_members(site, after))
            self._wait_until_it_answers(site, bool(after))
            self._write(site, after, workers)
        except (OnecatError, OSError):
            if site_before is not None:
                self.proxy.apply(with_members(site_before, before))
                self._write(site_before, before, workers)
            else:
                self._stop()
            raise

    def let_in(self, keys: ClientKeys) -> bool:
        """Let in who sends one of these keys from now on, and nobody else; returns whether that is another rule.

        Raises OnecatError when nginx refuses; then it serves as before.
        """
        with self._changing():
            before = self.site()
            if before is None or with_keys(before, keys) == before:
                return False
            site, members, workers = with_keys(before, keys), self.members(), self.proxy.workers()
            self._write(before, members, workers, changing=True)
            try:
                self.proxy.apply(with_members(site, members))
            except (OnecatError, OSError):
                self._write(before, members, workers)
                raise
            self._write(site, members, workers)
            return True

    def stop(self) -> None:
        """Answer nobody any more."""
        with self._changing():
            self._stop()

    def _stop(self) -> None:
        self.proxy.remove()
        self._machine.remove(self._path)

    def _changing(self) -> contextlib.AbstractContextManager[None]:
        path = f"{self._directory}/traffic.lock"
        return short_lock(self._machine, path, "changing where nginx sends requests", _CHANGE_SECONDS)

    def finished(self) -> bool:
        """Whether nginx has finished all requests that it had when the route was changed last."""
        document = self._document()
        return document is None or not self.proxy.workers().intersection(document.get("workers_before", ()))

    def _document(self) -> dict[str, Any] | None:
        found = read_json(self._machine, self._path)
        with understood(self._machine, self._path):
            return None if found is None else dict(found)

    def _write(self, site: Site, members: Sequence[Member], workers: frozenset[int], changing: bool = False) -> None:
        document = {
            "schema": TRAFFIC_SCHEMA,
            "site": to_document(site),
            "members": [asdict(each) for each in members],
            "workers_before": sorted(workers),
            "changing": changing,
            # What a hand edit is told by.
            "files": None if changing else installed_files(self.proxy),
        }
        write_json(self._machine, self._path, document)

    def _wait_until_it_answers(self, site: Site, has_servers: bool) -> None:
        limit = time.monotonic() + _ANSWER_SECONDS
        url = self._machine.reach(site.endpoint)
        while not (healthy(url, server_name=site.server_name) if has_servers else self.proxy.running()):
            if time.monotonic() > limit:
                raise OnecatError(
                    f"nginx does not pass requests on within {_ANSWER_SECONDS:.0f} s",
                    where=site.endpoint,
                    next_steps=["read its error log; it lies beside its access log"],
                    code=ExitCode.ROLLED_BACK,
                )
            time.sleep(_POLL_SECONDS)


def with_members(site: Site, members: Sequence[Member]) -> Site:
    """The site that sends requests to these servers."""
    upstreams = (Upstream(each.address, each.weight, f"{each.host}/{each.release}") for each in members)
    return replace(site, upstreams=tuple(upstreams))


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
