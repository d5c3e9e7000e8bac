"""The Docker engine that builds, as facts: its memory, processors, disk, the base images it has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from onecat.images.docker_engine import connect, engine_address
from onecat.images.engine_images import inspect


@dataclass(frozen=True)
class BuildHost:
    """Where a build runs.

    address: of its engine, or its name. data_root: where the engine keeps images. memory_bytes, cpus: of its machine.
    free_bytes: on the disk of the data root; None: not known from here. images: base image -> bytes, of those it has.
    """

    address: str
    version: str
    data_root: str
    memory_bytes: int
    cpus: int
    free_bytes: int | None = None
    images: dict[str, int] = field(default_factory=dict)


def read_build_host(
    docker_host: str | None,
    bases: Sequence[str],
    free_space: Callable[[str], int | None] | None = None,
    name: str | None = None,
) -> BuildHost:
    """Ask the engine at `docker_host`.

    Parameters:
        free_space: bytes free at a path of the engine's machine, for engines elsewhere; None: an engine behind a local
            socket is looked at directly, of another nothing is known.
        name: what to call the engine; None: its address.

    Raises OnecatError (exit code 3) when the engine cannot be reached.
    """
    with contextlib.closing(connect(docker_host)) as client:
        said = client.info()
        sizes = {base: inspect(client, base).get("Size") for base in bases}
    address = engine_address(docker_host)
    data_root = str(said.get("DockerRootDir") or "")
    measure = free_space or (local_free_space if address.startswith("unix://") else lambda path: None)
    return BuildHost(
        address=name or address,
        version=str(said.get("ServerVersion") or "?"),
        data_root=data_root,
        memory_bytes=int(said.get("MemTotal") or 0),
        cpus=int(said.get("NCPU") or 1),
        free_bytes=measure(data_root) if data_root else None,
        images={base: size for base, size in sizes.items() if size is not None},
    )


def local_free_space(path: str) -> int | None:
    """Bytes that may be written at a path of this machine; None when it cannot be seen, as for an engine in a virtual
    machine or a data root that is closed to this user."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
