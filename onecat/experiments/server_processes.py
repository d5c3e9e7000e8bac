"""The processes of a server as its host's kernel sees them: how much memory they have, where they may run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecat.deploy import processes
from onecat.experiments.loads.cores import from_ranges

if TYPE_CHECKING:
    from onecat.hosts import Machine

_ALL = "cat /proc/[0-9]*/stat 2>/dev/null; true"


@dataclass(frozen=True)
class ServerProcess:
    """One process. rss_bytes: its resident memory, pages of files and shared memory among them; private_bytes: the
    part that is its own (RssAnon). cores: where it may run. All as /proc/PID/status tells (proc(5))."""

    pid: int
    name: str
    rss_bytes: int
    private_bytes: int
    cores: tuple[int, ...]


def look_at(machine: Machine, pid: int) -> tuple[ServerProcess, ...]:
    """A process of a machine and all that it has started, parents first; none where it is gone. Raises OnecatError."""
    table = {}
    for line in machine.run(["sh", "-c", _ALL]).stdout.decode(errors="replace").splitlines():
        if line.strip():
            entry = processes.parse_stat(line)
            table[entry.pid] = entry
    if pid not in table:
        return ()
    pids = [each for each in (pid, *processes.descendants(pid, table)) if table[each].state not in "ZX"]
    files = [f"/proc/{each}/status" for each in pids]
    text = machine.run(["cat", *files]).stdout.decode(errors="replace")  # fails for those that have just gone
    return tuple(parse_statuses(text))


def parse_statuses(text: str) -> Iterable[ServerProcess]:
    """The processes of some /proc/PID/status, one after the other."""
    for part in text.split("Name:\t")[1:]:
        name, _, rest = part.partition("\n")
        values = dict(line.split(":", 1) for line in rest.splitlines() if ":" in line)
        yield ServerProcess(
            pid=int(values["Pid"]),
            name=name,
            rss_bytes=_bytes(values.get("VmRSS")),
            private_bytes=_bytes(values.get("RssAnon")),
            cores=from_ranges(values.get("Cpus_allowed_list", "")),
        )


def _bytes(text: str | None) -> int:
    """`  123 kB`; a kernel thread and a zombie have none."""
    return 0 if text is None else int(text.split()[0]) * 1024


def cores_of_machine(machine: Machine) -> tuple[int, ...]:
    """The cores that a program of ours may run on there. Raises OnecatError."""
    if machine.is_local:
        return tuple(sorted(os.sched_getaffinity(0)))
    text = machine.run(["cat", "/proc/self/status"]).stdout.decode(errors="replace")
    return next(iter(parse_statuses(text))).cores
