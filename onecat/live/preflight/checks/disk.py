"""Room on the disks."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.deploy.prerequisites import LEAST_FREE_BYTES
from onecat.doctor import Verdict, check
from onecat.doctor.units import GIB, MIB
from onecat.facts import Filesystem
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.host import HostSeen

_NAMES = {"data": "onecat's data and logs", "docker": "Docker's images and logs", "model": "the model"}


@check(
    "preflight.disk",
    title="The disks have room for logs, for the next release and for images",
    why="On a full disk the server's log stops, nginx cannot buffer large requests, and no release can be made or "
    "rolled back.",
    fix=("see what fills it: du -xh --max-depth=2 / | sort -h | tail", "onecat releases: older ones can go"),
    source=("https://docs.docker.com/engine/logging/configure/",),
    requires=needs(HostSeen),
    group="host",
    place=4,
)
def disk(look: Look) -> Iterator[Verdict]:
    """Free space where onecat keeps its data, where Docker keeps images (of a server in a container), and below the
    model, which needs none. Limit: preflight.disk_gib."""
    facts = look.of(HostSeen).facts
    purposes = ["data", *(["docker"] if look.release.runtime == "container" else [])]
    places = [(purpose, facts.filesystem(purpose)) for purpose in purposes]
    model = facts.filesystem("model")
    told = () if model is None else (f"the model: {_free(model)} at {model.path}",)
    known = [(purpose, place) for purpose, place in places if place is not None]
    for purpose, _ in [each for each in places if each[1] is None]:
        yield Verdict("skip", f"Not checked: where {_NAMES[purpose]} lie is not known", _NAMES[purpose])
    low = [each for each in known if each[1].available < look.limits.disk_gib * GIB]
    for purpose, place in low:
        full = place.available < LEAST_FREE_BYTES
        yield Verdict(
            "fail" if full else "warn",
            f"{_free(place)} for {_NAMES[purpose]}; limit {look.limits.disk_gib:g} GiB",
            evidence=(f"{place.path}: {_free(place)}", *told),
            fix=(
                f"see what fills it: du -xh --max-depth=2 {place.path} | sort -h | tail",
                "docker image prune" if purpose == "docker" else "set ONECAT_HOME to a directory on a larger disk",
            ),
        )
    if known and not low:
        free = ", ".join(f"{place.available / GIB:.1f} GiB for {_NAMES[purpose]}" for purpose, place in known)
        yield Verdict("pass", f"Free: {free}", evidence=told)


def _free(place: Filesystem) -> str:
    return f"{_size(place.available)} free of {_size(place.total)}"


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count // MIB} MiB"
