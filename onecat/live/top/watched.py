"""What of a host is watched: its GPUs, and the server of a deployment where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Machine


@dataclass(frozen=True)
class Watched:
    """deployment, release: of the server, None where only the host is watched. metrics_url: as the host reaches it.

    pids: of the server there. engine, model: what it is, for a person. note: why no server is watched.
    """

    deployment: str | None = None
    release: int | None = None
    metrics_url: str | None = None
    pids: tuple[int, ...] = ()
    model: str | None = None
    note: str | None = None


def watched_on(machine: Machine, name: str | None, *, required: bool = False) -> Watched:
    """What there is to watch on a host.

    Parameters:
        name: of the deployment; None: the only one there is on the host.
        required: whether there must be one, as when a person has named it.

    Raises OnecatError when the host cannot be reached, or has no deployment although one is required.
    """
    from onecat.deploy.servers import server_of
    from onecat.deploy.store import deployments, find_deployment

    if name is None:
        stores = list(deployments(machine))
        if len(stores) != 1:
            names = ", ".join(store.name for store in stores)
            return Watched(note=f"name one of {names} to see its server too" if stores else "nothing is deployed here")
        store = stores[0]
    else:
        try:
            store = find_deployment(machine, name)
        except OnecatError:
            if required:
                raise
            return Watched(note=f"{name} is not deployed here")
    release = store.current()
    if release is None:
        return Watched(store.name, note=f"{store.name} has no release that serves: onecat status {store.name}")
    pid = server_of(machine, release).state().pid
    return Watched(
        store.name,
        release.number,
        f"{release.server_url}/metrics",
        () if pid is None else (pid,),
        release.model,
    )
