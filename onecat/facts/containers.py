"""Docker and what gives its containers GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DockerContainer:
    """One container. gpus: whether it asks for some in any way. shm_size: of its own /dev/shm, None with another's.

    state: running, exited, ... restart_policy: no, always, unless-stopped, on-failure. ports: published on the host.
    device_paths: device files handed to it.
    """

    name: str
    image: str | None = None
    state: str | None = None
    restart_policy: str | None = None
    shm_size: int | None = None
    ipc_mode: str | None = None
    network_mode: str | None = None
    runtime: str | None = None
    gpus: bool | None = None
    privileged: bool | None = None
    security_options: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    device_paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class DockerImage:
    """An image that has to do with serving: its tags and labels."""

    id: str
    tags: tuple[str, ...] = ()
    size: int | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Docker:
    """The Docker daemon as seen from the user that probes.

    state: `absent` no client and no socket; `unreachable` nothing answers; `forbidden` the socket refuses this user.
    socket: the address that was asked, as unix:///var/run/docker.sock.
    log_options: of the daemon's default logging (max-size, ...), None when daemon.json cannot be read.
    shm_size: the daemon's default for containers, in bytes; None for Docker's own (64 MiB) or when not known.
    containers: None when they were not asked for.
    """

    state: Literal["absent", "unreachable", "forbidden", "reachable"]
    socket: str | None = None
    error: str | None = None
    server_version: str | None = None
    api_version: str | None = None
    client_version: str | None = None
    compose_version: str | None = None
    storage_driver: str | None = None
    root_directory: str | None = None
    cgroup_driver: str | None = None
    cgroup_version: str | None = None
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    security_options: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    logging_driver: str | None = None
    log_options: tuple[tuple[str, str], ...] | None = None
    shm_size: int | None = None
    containers: tuple[DockerContainer, ...] | None = None
    images: tuple[DockerImage, ...] | None = None


@dataclass(frozen=True)
class CdiSpecification:
    """A file that describes devices for containers. readable: by the user that probes.

    devices: full names (nvidia.com/gpu=all). driver_version: of the libraries that it mounts.
    """

    path: str
    readable: bool
    devices: tuple[str, ...] = ()
    driver_version: str | None = None


@dataclass(frozen=True)
class ContainerToolkit:
    """NVIDIA's container toolkit. version: of nvidia-ctk, or of nvidia-container-cli where there is only that.

    no_cgroups: its setting for rootless containers. mode: auto, legacy, cdi, csv.
    """

    version: str | None = None
    no_cgroups: bool | None = None
    mode: str | None = None
    specifications: tuple[CdiSpecification, ...] | None = None
