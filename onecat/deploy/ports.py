"""The ports that onecat's own deployments take: `doctor` must not call them taken by others."""

from __future__ import annotations

from onecat.deploy.releases import DeploymentStore, deployments
from onecat.deploy.server import RUNNING
from onecat.deploy.servers import server_of
from onecat.errors import OnecatError
from onecat.paths import Home


def own_ports(home: Home) -> tuple[int, ...]:
    """The ports on which deployments of this machine listen now: servers and proxies."""
    ports: list[int] = []
    for store in deployments(home):
        release = store.current()
        if release is None:
            continue
        try:
            running = server_of(release).state().condition in RUNNING
        except OnecatError:  # its Docker daemon is away, and its container with it
            running = False
        if running:
            ports.append(release.port)
        if proxy_pid(store) is not None:
            ports.append(release.endpoint_port)
    return tuple(ports)


def proxy_pid(store: DeploymentStore) -> int | None:
    """The process of the deployment's own nginx, if it runs."""
    from onecat.deploy.proxy import OwnNginx, find_nginx

    return OwnNginx(store.proxy_directory, find_nginx() or "nginx").pid()
