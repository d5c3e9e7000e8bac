"""The volume in which a server in a container keeps what it compiles: Triton's, inductor's and vLLM's caches.

It belongs to one deployment of one ONECAT_HOME and to one image: what is in it is code that gets run, so nobody else's
server may write there, and kernels of another image do not fit. It outlives releases that run the same image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onecat.deploy.container import HOME_LABEL, SPEC_FILE, connect, translated
from onecat.deploy.store import read_json

if TYPE_CHECKING:
    from onecat.deploy.container import Image
    from onecat.deploy.releases import Release
    from onecat.hosts import Machine

CACHE_DIRECTORY = "/var/cache/onecat"
"""Where our images keep caches; they say so by variables such as TRITON_CACHE_DIR that name directories below it."""
PREFIX = "onecat-cache-"
IMAGE_LABEL = "io.onecat.image"
DEPLOYMENT_LABEL = "io.onecat.deployment"


def volume_name(image_id: str, deployment: str, home: str) -> str:
    """The volume's name: the same for the same image, deployment and `home_identity`."""
    return PREFIX + hashlib.sha256(f"{home}\0{deployment}\0{image_id}".encode()).hexdigest()[:12]


def volume_labels(image_id: str, deployment: str, home: str) -> dict[str, str]:
    """Whose volume it is."""
    return {HOME_LABEL: home, DEPLOYMENT_LABEL: deployment, IMAGE_LABEL: image_id}


def keeps_caches(variables: Iterable[str]) -> bool:
    """Whether an image keeps its caches in CACHE_DIRECTORY, from its variables (`NAME=VALUE`)."""
    return any(each.partition("=")[2].startswith(f"{CACHE_DIRECTORY}/") for each in variables)


def cache_volume(image: Image, deployment: str, home: str) -> tuple[str, dict[str, str]] | None:
    """Name and labels of the volume for a server from `image`; None for an image that keeps no caches."""
    if not keeps_caches(image.variables):
        return None
    return volume_name(image.identifier, deployment, home), volume_labels(image.identifier, deployment, home)


def remove_unused(
    machine: Machine, releases: Iterable[Release], deployment: str, home: str, docker_host: str | None
) -> tuple[str, ...]:
    """Remove the deployment's cache volumes that no kept release names. Returns their names.

    Raises OnecatError when the engine refuses.
    """
    needed = {name for release in releases for name in _named_by(machine, release)}
    with translated(docker_host, None):
        client = connect(docker_host)
        filters = {"label": [f"{HOME_LABEL}={home}", f"{DEPLOYMENT_LABEL}={deployment}", IMAGE_LABEL]}
        unused = [each for each in client.volumes.list(filters=filters) if is_unused(each.name, each.attrs, needed)]
        for volume in unused:
            volume.remove()
    return tuple(volume.name for volume in unused)


def is_unused(name: str, attributes: Mapping[str, Any], needed: Iterable[str]) -> bool:
    """Whether a volume of the deployment is one of ours that nothing names any more."""
    return name.startswith(PREFIX) and IMAGE_LABEL in (attributes.get("Labels") or {}) and name not in set(needed)


def _named_by(machine: Machine, release: Release) -> list[str]:
    document = read_json(machine, f"{release.directory}/{SPEC_FILE}")
    volume = document.get("cache_volume") if isinstance(document, dict) else None
    return [volume] if isinstance(volume, str) else []
