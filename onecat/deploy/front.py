"""One nginx before the servers of several hosts: where it runs, and the address by which it reaches each server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecat.deploy import probing
from onecat.deploy.proxies import proxy_of
from onecat.deploy.traffic import Member, Traffic
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onecat.config import Deployment
    from onecat.deploy.releases import ProxyKind
    from onecat.deploy.site import Site
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Machine


@dataclass(frozen=True)
class Front:
    """The host whose nginx passes requests on to the servers of all hosts of a deployment.

    store: of the deployment there.
    """

    store: DeploymentStore

    def traffic(self, host: str, kind: ProxyKind) -> Traffic:
        """The requests of the deployment, of which `host` changes its own share."""
        return _Share(self, host, kind)


class _Share(Traffic):
    """What one of several hosts gets of the requests."""

    def __init__(self, front: Front, host: str, kind: ProxyKind) -> None:
        super().__init__(proxy_of(front.store, kind), front.store.machine, front.store.directory)
        self._host = host
        self._store = front.store

    def _route(self, host: str, members: Sequence[Member], site: Site) -> None:
        super()._route(host, members, site)
        if site.probed and len(self.members()) > 1:
            # Where it cannot be, `status` tells so: requests alone show then which server fails.
            probing.keep(self._store, self.proxy)

    def _stop(self) -> None:
        """Answer nobody for this host any more; nginx stays while others serve."""
        site = self.site()
        if site is not None and any(each.host != self._host for each in self.members()):
            self._route(self._host, [], site)
            return
        probing.remove(self._store)
        super()._stop()


def front_host(deployment: Deployment) -> str | None:
    """The host whose nginx stands before the servers of several; None where there are not several, or no nginx.

    Raises OnecatError when proxy.on names none of the hosts.
    """
    if len(deployment.hosts) < 2 or deployment.proxy.kind != "nginx" or deployment.ray is not None:
        return None
    chosen = deployment.proxy.on or deployment.hosts[0]
    if chosen not in deployment.hosts:
        raise OnecatError(
            f"proxy.on is {chosen}, which is none of the hosts",
            expected=f"one of: {', '.join(deployment.hosts)}",
            where="proxy.on",
            next_steps=["correct proxy.on in onecat.yaml"],
        )
    return chosen


def for_host(deployment: Deployment, host: str) -> Deployment:
    """The deployment as it is on one of its hosts: listening at the address that is given for it."""
    address = deployment.addresses.get(host)
    return deployment if address is None else deployment.model_copy(update={"host": address})


def address_of(deployment: Deployment, machine: Machine) -> str | None:
    """The address by which the nginx of a deployment with several hosts reaches the server of one; None: its own.

    Raises OnecatError when the server would listen where another host cannot reach it.
    """
    if machine.name == front_host(deployment) or front_host(deployment) is None:
        return None
    given = deployment.addresses.get(machine.name)
    if given is not None:
        return given
    if _is_loopback(deployment.host) or machine.address is None:
        raise OnecatError(
            f"nginx on {front_host(deployment)} cannot reach the server on {machine.name} at {deployment.host}"
            if _is_loopback(deployment.host)
            else f"the address of {machine.name} is not known, by which nginx on {front_host(deployment)} reaches it",
            expected="an address of each host that the host with nginx reaches",
            where="addresses" if machine.address is None else "host",
            next_steps=[
                f"addresses: {{{machine.name}: ADDRESS}} in onecat.yaml, an address in a network of the hosts alone",
                *(["or host: 0.0.0.0, to listen on all of its addresses"] if machine.address is not None else []),
            ],
        )
    return machine.address if _is_any(deployment.host) else deployment.host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
