"""The host's clock."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.doctor_findings import told_as_one
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.host import HostSeen


@check(
    "preflight.clock",
    title="The clock is right and kept by a time server",
    why="Certificates and tokens are judged by the clock, and the logs of several machines are put in order by it.",
    fix=("sudo timedatectl set-ntp true", "timedatectl status"),
    source=("https://man.cx/timedatectl",),
    requires=needs(HostSeen),
    group="host",
    place=5,
)
def clock(look: Look) -> Iterator[Verdict]:
    """Doctor's checks of the clock: whether a time server keeps it, and its difference to the operator's."""
    seen = look.of(HostSeen)
    found = seen.of("clock.")
    offset = seen.facts.clock.offset_seconds if seen.facts.clock is not None else None
    unkept = [each for each in found if each.check == "clock.synchronized" and each.status == "info"]
    for each in unkept:  # for one host that is worth knowing; before going live it is worth a warning
        yield Verdict("warn", each.title, evidence=each.evidence, fix=each.fix)
    rest = [each for each in found if each not in unkept]
    if not unkept or any(each.status in ("fail", "warn") for each in rest):
        told = "The clock is kept by a time server" if offset is None else f"The clock is right ({offset:+.1f} s)"
        yield from told_as_one(rest, told)
