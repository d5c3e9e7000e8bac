"""From a release to its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onecat.deploy.releases import Release, Service
    from onecat.deploy.server import Server
    from onecat.hosts import Machine


def _supervised(machine: Machine, release: Release) -> Server:
    from onecat.deploy.native import NativeServer

    return NativeServer(release.directory)


def _of_docker(machine: Machine, release: Release) -> Server:
    from onecat.deploy.container import ContainerServer

    return ContainerServer(machine, release.directory, release.docker_host)


def _of_systemd(machine: Machine, release: Release) -> Server:
    from onecat.deploy.unit_server import UnitServer

    return UnitServer(machine, release.directory, release.docker_host)


def _of_ray(machine: Machine, release: Release) -> Server:
    from onecat.deploy.ray_server import RayServer

    return RayServer(machine, release.directory)


_SERVERS: Mapping[Service, Callable[[Machine, Release], Server]] = {
    "supervisor": _supervised,
    "docker": _of_docker,
    "systemd": _of_systemd,
    "ray": _of_ray,
}


def server_of(machine: Machine, release: Release) -> Server:
    """The server of a release, to watch or stop; only what looks after it is loaded."""
    return _SERVERS[release.service](machine, release)
