"""What /proc says about processes: who they are, who descends from whom, what they have used. Standard library only.

A process is named by its id together with its start time and the boot it ran in, so that a reused id is not mistaken
for the process we started (proc(5): field 22 of /proc/PID/stat, /proc/sys/kernel/random/boot_id).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class ProcessIdentity(NamedTuple):
    """One process, for ever. start_ticks: clock ticks between boot and its start."""

    pid: int
    start_ticks: int
    boot_id: str


class ProcessEntry(NamedTuple):
    """One line of the process table. cpu_ticks includes the children it has waited for."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    start_ticks: int
    cpu_ticks: int


class Usage(NamedTuple):
    """What a set of processes has used so far.

    read_bytes: bytes fetched from disks (proc(5), /proc/PID/io). runnable: whether one runs or waits for a processor.
    """

    cpu_seconds: float
    read_bytes: int
    runnable: bool


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def parse_stat(text: str) -> ProcessEntry:
    """One /proc/PID/stat line. The command name may hold blanks and parentheses, so fields count from the last `)`."""
    pid = int(text[: text.index(" ")])
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessEntry(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu_ticks=sum(int(field) for field in fields[11:15]),
        start_ticks=int(fields[19]),
    )


def entry(pid: int) -> ProcessEntry | None:
    """The process table's line for `pid`, or None when there is no such process."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def table() -> dict[int, ProcessEntry]:
    """Every process that can be seen, by id."""
    entries = (entry(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - /proc is large
    return {found.pid: found for found in entries if found is not None}


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a running process."""
    found = entry(pid)
    return None if found is None else ProcessIdentity(pid, found.start_ticks, boot_id())


def alive(identity: ProcessIdentity) -> bool:
    """Whether this very process still runs (a zombie does not)."""
    found = entry(identity.pid)
    return (
        found is not None
        and found.state not in "ZX"
        and found.start_ticks == identity.start_ticks
        and identity.boot_id == boot_id()
    )


def descendants(pid: int, processes: dict[int, ProcessEntry] | None = None) -> tuple[int, ...]:
    """Ids of the children of `pid`, their children and so on, parents first."""
    listed = table() if processes is None else processes
    children: dict[int, list[int]] = {}
    for process in listed.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return tuple(found)


def session_members(session: int) -> tuple[int, ...]:
    """Ids of the live processes of a session (a session's number is not reused while one member lives)."""
    return tuple(
        process.pid for process in table().values() if process.session == session and process.state not in "ZX"
    )


def with_variable(name: str, value: str) -> tuple[int, ...]:
    """Ids of the processes that were started with the environment variable `name` set to `value`.

    A process that has changed its title (setproctitle) may have overwritten what the kernel shows here.
    """
    wanted = f"{name}={value}".encode()
    found = []
    for pid in table():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if wanted in environment.split(b"\0"):
            found.append(pid)
    return tuple(found)


def usage(pids: Iterable[int]) -> Usage:
    """What the given processes have done and do; those that have gone or may not be looked at count nothing."""
    ticks, read, runnable = 0, 0, False
    for pid in pids:
        found = entry(pid)
        if found is None:
            continue
        ticks += found.cpu_ticks
        runnable = runnable or found.state == "R"
        try:
            lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        counters = dict(line.split(": ") for line in lines)
        read += int(counters["read_bytes"])
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), read, runnable)


def told(pids: Iterable[int]) -> str:
    """Those of the given processes that still run, for a person: name, id and state (proc(5): D waits for a device)."""
    parts = []
    for pid in pids:
        found = entry(pid)
        if found is not None and found.state not in "ZX":
            try:
                name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parts.append(f"{name} (pid {pid}, state {found.state})")
    return ", ".join(parts)
