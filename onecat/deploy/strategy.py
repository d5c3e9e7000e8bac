"""How a new release takes the place of the old one: both for a while, or the old one first. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onecat.deploy.releases import StrategyName

Wanted = Literal["auto", "blue-green", "recreate"]


@dataclass(frozen=True)
class Room:
    """What decides whether two releases can run at once on a host.

    proxied: whether nginx passes requests on before and after. gpus_needed: by the new release; gpus_free: on the host
    while the old one runs. memory_needed, memory_free: bytes of the host's memory, for a server without a GPU;
    None: not known. is_cluster: whether either is a Ray cluster, of which its ports on the hosts allow one.
    same_address: whether another kind of nginx shall listen where the one of now does.
    """

    proxied: bool
    gpus_needed: int = 0
    gpus_free: int = 0
    memory_needed: int | None = None
    memory_free: int | None = None
    is_cluster: bool = False
    same_address: bool = False


@dataclass(frozen=True)
class Strategy:
    """The decision. gap: whether requests are refused for a while; why: in words; seconds: of the gap, if known."""

    name: StrategyName
    why: str
    gap: bool
    seconds: float | None = None

    @property
    def told(self) -> str:
        """The decision in one line."""
        return f"{self.name}: {self.why}" + (f"; {self.told_gap}" if self.gap else "")

    @property
    def told_gap(self) -> str:
        """How long requests are refused, in words."""
        seconds = "" if self.seconds is None else f" for about {self.seconds:.0f} s, as long as the start before took"
        return f"requests are refused{seconds}" if self.gap else "no request is refused"


def obstacle(room: Room) -> str | None:
    """Why two releases cannot run at once; None when they can."""
    if not room.proxied:
        return "clients reach the server itself, so the port must be free first"
    if room.same_address:
        return "another kind of nginx shall listen where the one of now does"
    if room.is_cluster:
        return "two Ray clusters of one deployment would share their ports"
    if room.gpus_needed > room.gpus_free:
        return f"the new release needs {_count(room.gpus_needed, 'GPU')} and {room.gpus_free} are free"
    if room.memory_needed is not None and room.memory_free is not None and room.memory_needed > room.memory_free:
        needed, free = room.memory_needed / 2**30, room.memory_free / 2**30
        return f"the new release needs about {needed:.1f} GiB of memory and {free:.1f} GiB are free"
    return None


def choose(wanted: Wanted, runs: bool, room: Room, last_start_seconds: float | None) -> Strategy:
    """The strategy for a new release.

    Parameters:
        wanted: `rollout.strategy` of onecat.yaml. runs: whether a release runs that it replaces.
        last_start_seconds: from start to ready, as measured with the release before.
    """
    if not runs:
        return Strategy("first", "nothing runs that it would replace", False)
    stops = obstacle(room)
    if wanted == "recreate" or room.is_cluster or room.same_address or (wanted == "auto" and stops is not None):
        why = stops or "rollout.strategy of onecat.yaml says so"
        return Strategy("recreate", why, True, last_start_seconds)
    if wanted == "blue-green":
        return Strategy("blue-green", "rollout.strategy of onecat.yaml says so", False)
    return Strategy("blue-green", "there is room for both", False)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
