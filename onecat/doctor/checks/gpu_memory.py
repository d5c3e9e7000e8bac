"""The memory of the GPUs: how much there is, who holds it, what is mapped of it."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import meant, place, subject
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import GIB, MIB, counted, gibibytes
from onecat.facts import Gpu
from onecat.knowledge.hardware import gpu_model

NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

HELD_SHARE = 0.05
"""Share of a GPU's memory that may be in use before a server with the default 0.92 no longer fits well."""
PROGRAM_NAME = 40
"""Characters of a program's name that are quoted: browsers have hundreds."""
SOLD_TO_SEEN = 0.9
"""ECC and the firmware keep some of the memory that a card is sold with."""


@check(
    "gpu.memory-total",
    title="The GPUs have the memory that the profile counts on",
    why="The same name is sold with different memory sizes; the launch defaults count on one.",
    fix=("choose the profile of your GPUs: onecat profile detect",),
    source=(NVML,),
    requires=(requirements.gpu_profile, requirements.gpus),
)
def gpu_memory_total(context: Context) -> Iterator[Verdict]:
    """The memory size that NVML reports, less what ECC and firmware keep."""
    assert context.profile is not None
    needed = context.profile.hardware.memory_gib
    for gpu in meant(context):
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
                fix=("choose the profile of your GPUs: onecat profile detect",),
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
            processes = _processes(gpu)
            pids = ",".join(str(process.pid) for process in gpu.processes or ()) or ",".join(
                map(str, gpu.process_ids or ())
            )
            own = bool(context.settings.own_ports)
            yield Verdict(
                "info" if own else "warn",
                f"{gibibytes(gpu.memory_used)} of {gibibytes(gpu.memory_total)} are in use"
                + (", and a deployment of onecat runs here" if own else ""),
                subject(gpu),
                (
                    f"{place(gpu)}: {gibibytes(gpu.memory_used)} in use",
                    f"processes: {processes}" if processes else "NVML lists no process (perhaps in a container)",
                ),
                fix=(
                    f"ps -fp {pids}" if pids else "nvidia-smi",
                    "end them, or lower gpu-memory-utilization",
                ),
            )


def _processes(gpu: Gpu) -> str:
    """The programs on a GPU with their names and memory, where those are known."""
    if gpu.processes is None:
        return ", ".join(map(str, gpu.process_ids or ()))
    return ", ".join(
        str(each.pid)
        + (f" ({each.name[:PROGRAM_NAME]})" if each.name else "")
        + (f" {each.memory // MIB} MiB" if each.memory else "")
        for each in gpu.processes
    )


@check(
    "gpu.stuck-process",
    title="No program hangs inside the driver",
    why="A program that cannot leave the driver cannot be killed and keeps its GPU memory; only a reboot ends it.",
    fix=("sudo cat /proc/PID/stack", "sudo reboot"),
    source=("https://github.com/vllm-project/vllm/issues/25127",),
    requires=(requirements.gpus,),
)
def gpu_stuck_process(context: Context) -> Iterator[Verdict]:
    """The kernel functions that the programs on each GPU wait in."""
    for gpu in context.gpus:
        stuck = [process for process in gpu.processes or () if process.stuck_in]
        if gpu.processes is None:
            yield Verdict("skip", "Not checked: the programs on the GPU are not known", subject(gpu))
        elif gpu.processes and not stuck and not context.facts.is_root:
            yield Verdict("skip", "Not checked: where programs of others wait only root may see: --sudo", subject(gpu))
        elif not stuck:
            yield Verdict("pass", f"{counted(len(gpu.processes), 'program')}, none stuck", subject(gpu))
        for process in stuck:
            name = f"{process.pid} ({process.name})" if process.name else str(process.pid)
            yield Verdict(
                "warn",
                f"Process {name} does not leave the kernel's {process.stuck_in}",
                subject(gpu),
                (f"process {name}: in {process.stuck_in}",),
                fix=(f"look again: sudo cat /proc/{process.pid}/stack", "when it stays there: sudo reboot"),
            )


@check(
    "gpu.bar1",
    title="The whole GPU memory can be mapped on the PCI bus",
    why="Other GPUs and network cards reach a GPU's memory through its window on the PCI bus (BAR1). Data-centre cards "
    "open all of it when the firmware lets them.",
    fix=("in the firmware setup: Above 4G Decoding on (and Resizable BAR, where offered)",),
    source=(NVML, "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html"),
    requires=(requirements.gpus,),
)
def gpu_bar1(context: Context) -> Iterator[Verdict]:
    """The size of BAR1 against that of the same product elsewhere. Cards that onecat has no figure for are left out."""
    for gpu in context.gpus:
        model = gpu_model(gpu.name)
        usual = model.bar1_mib if model else None
        if gpu.bar1_total is None or usual is None or gpu.mig_enabled:
            what = f"the usual size of {gpu.name}" if gpu.bar1_total is not None and not gpu.mig_enabled else "the size"
            yield Verdict("skip", f"Not checked: {what} is not known", subject(gpu))
            continue
        evidence = (f"{place(gpu)}: BAR1 {gpu.bar1_total // MIB} MiB, usual {usual} MiB",)
        if gpu.bar1_total >= usual * MIB:
            yield Verdict("pass", f"BAR1 is {gibibytes(gpu.bar1_total)}", subject(gpu), evidence)
        else:
            yield Verdict(
                "info",
                f"BAR1 is {gpu.bar1_total // MIB} MiB where this card can open {usual} MiB",
                subject(gpu),
                evidence,
                fix=("in the firmware setup: Above 4G Decoding on",),
            )
