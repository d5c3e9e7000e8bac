"""One host of a deployment, to be observed: the way to it, and where its server and its nginx are asked."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onecat.deploy.releases import ProxyKind
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStore
    from onecat.deploy.proxies import Proxy
    from onecat.deploy.site import Site
    from onecat.hosts import Machine
    from onecat.live.preflight.look import Look


@dataclass(frozen=True, eq=False)
class Subject:
    """What an observation is made of.

    look: without observations. is_alone: whether its nginx, where it has one, passes requests on to it alone.
    """

    store: DeploymentStore
    look: Look
    is_alone: bool
    quick: bool = False
    tell: Callable[[str], None] = field(default=lambda text: None)

    @property
    def machine(self) -> Machine:
        return self.store.machine

    @functools.cached_property
    def server_url(self) -> str:
        """The server's own address, as this machine reaches it."""
        return self.machine.reach(self.look.release.server_url)

    @property
    def proxy_kind(self) -> ProxyKind | None:
        """Whose nginx runs on this host."""
        return self.look.release.own_proxy_kind

    @functools.cached_property
    def proxy(self) -> Proxy | None:
        from onecat.deploy.proxies import proxy_of

        return None if self.proxy_kind is None else proxy_of(self.store, self.proxy_kind)

    @functools.cached_property
    def site(self) -> Site | None:
        """The site that its nginx has, without servers."""
        from onecat.deploy.traffic import Traffic

        return None if self.proxy is None else Traffic(self.proxy, self.machine, self.store.directory).site()

    @functools.cached_property
    def endpoint_url(self) -> str | None:
        """The address for clients, as this machine reaches it; None where no nginx of this host answers there."""
        return None if self.site is None else self.machine.reach(self.site.endpoint)

    @functools.cached_property
    def api_key(self) -> str | None:
        """The server's API key; None where it demands none. Raises OnecatError where it cannot be had."""
        from onecat.deploy.prerequisites import read_secret, secret_of

        if not self.look.release.protected:
            return None
        directory = self.look.release.directory
        copy = self.machine.read(f"{directory}/secrets/api_key")
        if copy is not None:
            return copy.decode("utf-8", "replace").strip()
        launch = json.loads(self.machine.read(f"{directory}/launch.json") or b"{}")
        secret = launch.get("secret") or {}
        if secret.get("file") and (content := self.machine.read(secret["file"])) is not None:
            return content.decode("utf-8", "replace").strip()
        key = read_secret(secret_of(self.look.deployment))
        if key is None:
            raise OnecatError("the server demands an API key, and where that lies is not known")
        return key

    @functools.cached_property
    def client_key(self) -> str | None:
        """The key by which a client gets through nginx: the server's own, or one of those that nginx knows.

        Raises OnecatError where it cannot be had.
        """
        from onecat.deploy.client_keys import read_client_keys

        if self.site is None or not self.site.checks_keys:
            return self.api_key
        keys = read_client_keys(self.look.deployment, self.api_key)
        if keys is None:
            raise OnecatError("nginx lets in only who sends a key, and the file of keys is not known")
        return keys.clients[0][1]
