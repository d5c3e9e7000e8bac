"""Which nginx stands before a deployment on a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.deploy.proxies.program import find_nginx
from onecat.deploy.releases import ProxyKind

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.hosts import Machine


def choose_proxy(machine: Machine, deployment: Deployment) -> ProxyKind | None:
    """The kind of nginx for this deployment; None where the host has none."""
    return "own" if find_nginx(machine) is not None else None
