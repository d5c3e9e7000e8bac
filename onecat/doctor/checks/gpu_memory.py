"""The memory of the GPUs: how much there is, who holds it, what is mapped of it."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import place, subject
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import GIB, gibibytes

NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

HELD_SHARE = 0.05
"""Share of a GPU's memory that may be in use before a server with the default 0.92 no longer fits well."""
SOLD_TO_SEEN = 0.9
"""ECC and the firmware keep some of the memory that a card is sold with."""


@check(
    "gpu.memory-total",
    title="The GPUs have the memory that the profile counts on",
    why="The same name is sold with different memory sizes; the launch defaults count on one.",
    fix=("choose the profile of your GPUs: onecat profile list",),
    source=(NVML,),
    requires=(requirements.gpu_profile, requirements.gpus),
)
def gpu_memory_total(context: Context) -> Iterator[Verdict]:
    """The memory size that NVML reports, less what ECC and firmware keep."""
    assert context.profile is not None
    needed = context.profile.hardware.memory_gib
    for gpu in context.gpus:
        if needed is None or gpu.memory_total is None:
            yield Verdict("skip", "Not checked: the memory size is not known", subject(gpu))
        elif gpu.memory_total >= needed * GIB * SOLD_TO_SEEN:
            yield Verdict("pass", f"{gibibytes(gpu.memory_total)} of memory", subject(gpu))
        else:
            yield Verdict(
                "fail",
                f"{gibibytes(gpu.memory_total)} of memory, the profile {context.profile.name} counts on {needed:g} GiB",
                subject(gpu),
                (f"{place(gpu)}: {gpu.memory_total} bytes",),
                fix=("choose the profile of your GPUs: onecat profile list",),
            )


@check(
    "gpu.memory-held",
    title="No other program holds GPU memory",
    why="The engine takes a fixed share of each GPU at its start (92 % by default) and refuses to start when less is "
    "free.",
    fix=("nvidia-smi", "end the programs that hold the memory, or lower gpu-memory-utilization"),
    source=("https://github.com/vllm-project/vllm/pull/38284", NVML),
    requires=(requirements.gpus,),
)
def gpu_memory_held(context: Context) -> Iterator[Verdict]:
    """Memory in use without the driver's own reserve, and the processes that NVML lists."""
    for gpu in context.gpus:
        if gpu.memory_used is None or not gpu.memory_total:
            yield Verdict("skip", "Not checked: the memory in use is not known", subject(gpu))
        elif gpu.memory_used <= gpu.memory_total * HELD_SHARE:
            yield Verdict("pass", f"{gibibytes(gpu.memory_used)} in use", subject(gpu))
        else:
            processes = ", ".join(map(str, gpu.process_ids or ()))
            yield Verdict(
                "warn",
                f"{gibibytes(gpu.memory_used)} of {gibibytes(gpu.memory_total)} are in use",
                subject(gpu),
                (
                    f"{place(gpu)}: {gibibytes(gpu.memory_used)} in use",
                    f"processes: {processes}" if processes else "NVML lists no process (perhaps in a container)",
                ),
                fix=(
                    f"ps -fp {processes.replace(' ', '')}" if processes else "nvidia-smi",
                    "end them, or lower gpu-memory-utilization",
                ),
            )
