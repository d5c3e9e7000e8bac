"""From a release to its server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.server import Server
    from onecat.hosts import Machine


def server_of(machine: Machine, release: Release) -> Server:
    """The server of a release, to watch or stop; only its own runtime is loaded."""
    if release.service == "docker":
        from onecat.deploy.container import ContainerServer

        return ContainerServer(machine, release.directory, release.docker_host)
    from onecat.deploy.native import NativeServer

    return NativeServer(release.directory)
