"""Memory, swap, and what happened when memory ran out."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.engine_programs import is_engine
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import GIB, counted, gibibytes

SOLD_TO_SEEN = 0.9
"""A machine sold with 32 GB shows less: the firmware and the kernel keep some."""
LEAST_AVAILABLE = GIB
"""Python and PyTorch alone, before any weights, take about as much for one server process."""
LEAST_SHARE_AVAILABLE = 0.05
"""Small machines are not short of memory with less than LEAST_AVAILABLE."""
SHORT_SHARE_AVAILABLE = 0.1
"""With more than this to spare, what lies in swap are pages that nobody asks for."""
MEMINFO = "https://www.kernel.org/doc/Documentation/filesystems/proc.txt"


@check(
    "memory.total",
    title="The host has enough memory",
    why="The engine, its workers and the page cache that holds the weights while they load need it; too little ends in "
    "the kernel killing the server.",
    fix=("give the host more memory", "or raise the limit of the control group or container that onecat runs in"),
    source=("https://docs.vllm.ai/en/latest/getting_started/installation/",),
    requires=(requirements.profile,),
)
def memory_total(context: Context) -> Iterator[Verdict]:
    """MemTotal of /proc/meminfo, or the limit of our control group when that is lower, against the profile."""
    assert context.profile is not None
    memory = context.facts.memory
    needed = context.profile.doctor.memory_gib
    if memory is None or memory.total is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('memory', 'the memory size is not known')}")
        return
    usable = min(memory.total, memory.cgroup_limit or memory.total)
    evidence = [f"total: {gibibytes(memory.total)}", f"needed: {needed:g} GiB"]
    if memory.cgroup_limit is not None and memory.cgroup_limit < memory.total:
        evidence.insert(1, f"limit of the control group: {gibibytes(memory.cgroup_limit)}")
    if usable >= needed * GIB * SOLD_TO_SEEN:
        yield Verdict("pass", f"{gibibytes(usable)} of memory", evidence=tuple(evidence))
    elif usable < memory.total:
        yield Verdict(
            "fail",
            f"A control group limits memory to {gibibytes(usable)}, {needed:g} GiB are needed",
            evidence=tuple(evidence),
            fix=("raise the memory limit of the container or unit that onecat runs in",),
        )
    else:
        yield Verdict(
            "fail",
            f"{gibibytes(usable)} of memory, {needed:g} GiB are needed",
            evidence=tuple(evidence),
            fix=("give the host more memory",),
        )


@check(
    "memory.available",
    title="The host has memory to spare",
    why="When the last memory is used the kernel kills a process, and a server that is loading is the largest.",
    fix=("see what uses it: ps aux --sort=-rss | head", "end what is not needed"),
    source=(MEMINFO,),
)
def memory_available(context: Context) -> Iterator[Verdict]:
    """MemAvailable of /proc/meminfo: what new programs can have without swapping."""
    memory = context.facts.memory
    if memory is None or memory.available is None or memory.total is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('memory', 'the available memory is not known')}")
        return
    evidence = (f"available: {gibibytes(memory.available)} of {gibibytes(memory.total)}",)
    if memory.available < min(LEAST_AVAILABLE, LEAST_SHARE_AVAILABLE * memory.total):
        yield Verdict(
            "warn",
            f"Only {gibibytes(memory.available)} of memory are available",
            evidence=evidence,
            fix=("see what uses it: ps aux --sort=-rss | head", "end what is not needed"),
        )
    else:
        yield Verdict("pass", f"{gibibytes(memory.available)} of memory are available", evidence=evidence)


@check(
    "memory.swap",
    title="The host does not live from swap",
    why="What lies in swap comes back at the speed of a disk: answers stall, and loading takes hours.",
    fix=("see what uses memory: ps aux --sort=-rss | head", "end what is not needed, or give the host more memory"),
    source=(MEMINFO,),
)
def memory_swap(context: Context) -> Iterator[Verdict]:
    """SwapTotal and SwapFree of /proc/meminfo. Swap in use is judged only together with scarce memory."""
    memory = context.facts.memory
    if memory is None or memory.swap_total is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('memory', 'the swap space is not known')}")
    elif memory.swap_total == 0:
        yield Verdict("pass", "There is no swap space")
    elif memory.swap_free is None or memory.available is None or memory.total is None:
        yield Verdict("skip", "Not checked: how much swap is in use is not known")
    else:
        used = memory.swap_total - memory.swap_free
        evidence = (
            f"swap: {gibibytes(used)} of {gibibytes(memory.swap_total)} used",
            f"memory available: {gibibytes(memory.available)} of {gibibytes(memory.total)}",
        )
        if used > memory.swap_total / 2 and memory.available < SHORT_SHARE_AVAILABLE * memory.total:
            yield Verdict(
                "warn",
                f"Memory is short: {gibibytes(used)} lie in swap",
                evidence=evidence,
                fix=(
                    "see what uses memory: ps aux --sort=-rss | head",
                    "end what is not needed, or give the host more memory",
                ),
            )
        else:
            yield Verdict("pass", "Memory is not short", evidence=evidence)


@check(
    "memory.kills",
    title="The kernel has killed no program for want of memory",
    why="The kernel ends the largest program when memory, or the limit of its control group, is used up; a server just "
    'vanishes, its log only says "Killed" or nothing.',
    fix=(
        "give the host or the container more memory, or serve a smaller model",
        "see the whole story: sudo dmesg -T | grep -i -A3 'out of memory'",
    ),
    source=("https://github.com/torvalds/linux/blob/master/mm/oom_kill.c",),
    requires=(requirements.kernel_log,),
    to_pass=(requirements.whole_kernel_log,),
)
def memory_kills(context: Context) -> Iterator[Verdict]:
    """Lines of the kernel log about programs it killed, whether the whole machine or a control group was short."""
    events = [each for each in context.facts.kernel_events or () if each.kind == "out-of-memory-kill"]
    if not events:
        yield Verdict("pass", "The kernel log tells of no program killed for want of memory")
    for event in events:
        name = event.process or "a program"
        yield Verdict(
            "warn" if event.process is None or is_engine(event.process) else "info",
            f"The kernel killed {name} for want of memory ({counted(event.count, 'time')})",
            name,
            (event.text,),
            fix=(
                "give the host or the container more memory, or serve a smaller model",
                "see the whole story: sudo dmesg -T | grep -i -A3 'out of memory'",
            ),
        )
