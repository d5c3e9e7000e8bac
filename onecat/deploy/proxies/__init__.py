"""The nginx that passes requests on: the host's, one of our own, or one in a container.

In: the store of a deployment on its host, and the kind of nginx. Out: a `Proxy` that serves by a `Site`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from onecat.deploy.proxies.proxy import Proxy

if TYPE_CHECKING:
    from onecat.deploy.releases import ProxyKind
    from onecat.deploy.store import DeploymentStore

_KINDS: dict[str, str] = {"host": "HostNginx", "own": "OwnNginx", "container": "ContainerNginx"}

__all__ = ["Proxy", "proxy_of"]


def proxy_of(store: DeploymentStore, kind: ProxyKind) -> Proxy:
    """The nginx of a kind that stands before a deployment."""
    made = getattr(importlib.import_module(f"onecat.deploy.proxies.{kind}"), _KINDS[kind])(store)
    assert isinstance(made, Proxy)
    return made
