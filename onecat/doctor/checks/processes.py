"""Programs that cannot go on."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.engine_programs import is_engine
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted

HUNG_TASKS = "https://github.com/torvalds/linux/blob/master/kernel/hung_task.c"


@check(
    "os.hung-tasks",
    title="No program hangs in the kernel",
    why="The kernel reports programs that have waited two minutes for a device without a break: a dead disk, a lost "
    "network mount, or a driver that no longer answers. They cannot be killed.",
    fix=(
        "see where they wait: sudo dmesg -T | grep -A12 'blocked for more than'",
        "put the device or mount in order that they wait for; a restart of the host ends them",
    ),
    source=(HUNG_TASKS,),
    requires=(requirements.kernel_log,),
    to_pass=(requirements.whole_kernel_log,),
)
def os_hung_tasks(context: Context) -> Iterator[Verdict]:
    """Lines of the kernel log about blocked tasks, by the program that waits."""
    events = [each for each in context.facts.kernel_events or () if each.kind == "hung-task"]
    if not events:
        yield Verdict("pass", "The kernel log tells of no hanging program")
    for event in events:
        name = event.process or "a program"
        is_of_gpus = name.lower().startswith("nv") and context.concerns_gpus
        is_of_npus = name.lower().startswith("npu") and requirements.ascend(context) is None
        yield Verdict(
            "warn" if is_engine(event.process) or is_of_gpus or is_of_npus else "info",
            f"{name} has hung in the kernel ({counted(event.count, 'report')})",
            name,
            (event.text,),
            fix=(
                "see where it waits: sudo dmesg -T | grep -A12 'blocked for more than'",
                "put the device or mount in order that it waits for; a restart of the host ends it",
            ),
        )
