"""The host's memory."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.doctor.units import gibibytes
from onecat.live.preflight.doctor_findings import told_as_one
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.host import HostSeen


@check(
    "preflight.memory",
    title="The host has memory to spare and does not live from swap",
    why="When memory is used up the kernel ends the largest program, which is the server; what lies in swap comes back "
    "at the speed of a disk.",
    fix=("see what uses it: ps aux --sort=-rss | head", "end what is not needed, or give the host more memory"),
    source=("https://www.kernel.org/doc/Documentation/filesystems/proc.txt",),
    requires=needs(HostSeen),
    group="host",
    place=3,
)
def memory(look: Look) -> Iterator[Verdict]:
    """Doctor's checks of memory, swap and kills, with the server running."""
    seen = look.of(HostSeen)
    found = seen.facts.memory
    told = "Memory is enough"
    if found is not None and found.available is not None and found.total is not None:
        told = f"{gibibytes(found.available)} of {gibibytes(found.total)} available"
        if found.swap_total == 0:
            told += ", no swap"
        elif found.swap_total is not None and found.swap_free is not None:
            told += f", {gibibytes(found.swap_total - found.swap_free)} of {gibibytes(found.swap_total)} swap used"
    yield from told_as_one(seen.of("memory."), told)
