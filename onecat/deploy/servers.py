"""From a release to its server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.server import Server


def server_of(release: Release) -> Server:
    """The server of a release, to watch or stop; only its own runtime is loaded."""
    if release.runtime == "container":
        from onecat.deploy.container import ContainerServer

        return ContainerServer(release.directory, release.docker_host)
    from onecat.deploy.native import NativeServer

    return NativeServer(release.directory)
