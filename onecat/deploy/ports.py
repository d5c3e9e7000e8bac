"""Ports: which ones onecat's own deployments take, and which one a new release gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onecat.deploy.proxies import proxy_of
from onecat.deploy.server import RUNNING
from onecat.deploy.servers import server_of
from onecat.deploy.store import DeploymentStore, deployments
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Machine

PORTS_TRIED = 10


def own_ports(machine: Machine) -> tuple[int, ...]:
    """The ports on which deployments of a host listen now: servers and proxies."""
    return tuple(sorted(port for store in deployments(machine) for port in ports_of(store)))


def ports_of(store: DeploymentStore) -> frozenset[int]:
    """The ports on which releases of one deployment and its nginx listen now, those of a killed `up` among them."""
    live = [release for release in store.releases() if release.live]
    ports: set[int] = set()
    for release in live:
        try:
            running = server_of(store.machine, release).state().condition in RUNNING
        except OnecatError:  # its Docker daemon is away, and its container with it
            running = False
        if running:
            ports.add(release.port)
        if release.own_proxy_kind is not None and proxy_of(store, release.own_proxy_kind).running():
            ports.add(release.endpoint_port)
    return frozenset(ports)


def free_port(wanted: int, taken: Callable[[int], bool]) -> int:
    """The first of PORTS_TRIED ports from `wanted` on that is not taken. Raises OnecatError when all are."""
    for port in range(wanted, min(wanted + PORTS_TRIED, 65536)):
        if not taken(port):
            return port
    raise OnecatError(
        f"the ports {wanted} to {wanted + PORTS_TRIED - 1} are all in use",
        expected="a free one: the new release runs beside the old one for a while",
        where="port",
        next_steps=["see who listens: ss -ltnp", "set another port in onecat.yaml", "or rollout.strategy: recreate"],
        code=ExitCode.ROLLED_BACK,
    )
