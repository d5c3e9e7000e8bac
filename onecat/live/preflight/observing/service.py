"""Who keeps the server running, and what there is to go back to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onecat.deploy.server import ServerState
from onecat.live.preflight.look import Unknown
from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject


@dataclass(frozen=True)
class Keeper:
    """state: of the server as whoever keeps it says. policy: what starts it again after a crash, as it is now; None:
    nothing does. shm_bytes: of a container's own /dev/shm."""

    state: ServerState
    policy: str | None
    shm_bytes: int | None = None


@dataclass(frozen=True)
class WayBack:
    """earlier: numbers of kept releases that have served and are others than the current one."""

    earlier: tuple[int, ...]
    kept: int


@observer(Keeper, place=70)
def observe_keeper(subject: Subject) -> Keeper | Unknown:
    """Asks Docker, systemd or the supervisor."""
    from onecat.deploy.servers import server_of

    release = subject.look.release
    state = server_of(subject.machine, release).state()
    if release.service == "supervisor":
        policy = "onecat's supervisor" if state.condition not in ("lost", "absent") else None
        return Keeper(state, policy)
    if release.container is None:
        return Unknown("each node of a Ray cluster has a container of its own, and those are not looked at")
    attributes = _inspected(subject)
    host = attributes.get("HostConfig") or {}
    if release.service == "systemd":
        unit = f"{release.container}.service"
        shown = subject.machine.run(["systemctl", "show", "--value", "--property=Restart", unit])
        word = shown.stdout.decode("utf-8", "replace").strip()
        policy = f"systemd, Restart={word}" if word not in ("", "no") else None
    else:
        word = (host.get("RestartPolicy") or {}).get("Name") or "no"
        policy = f"Docker, {word}" if word != "no" else None
    return Keeper(state, policy, host.get("ShmSize") if host.get("IpcMode") != "host" else None)


def _inspected(subject: Subject) -> Mapping[str, Any]:
    from docker.errors import NotFound

    from onecat.deploy.container import connect, translated

    release = subject.look.release
    docker_host = subject.machine.docker_host(release.docker_host)
    with translated(docker_host, None):
        try:
            found: Mapping[str, Any] = connect(docker_host).api.inspect_container(release.container)
        except NotFound:
            return {}
    return found


@observer(WayBack, place=75)
def observe_way_back(subject: Subject) -> WayBack:
    """The releases that the host keeps."""
    current = subject.look.release
    kept = subject.store.releases()
    earlier = [each.number for each in kept if each.served_at and each.fingerprint != current.fingerprint]
    return WayBack(tuple(earlier), len(kept))
