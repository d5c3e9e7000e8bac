"""What the NVIDIA driver reported of the GPUs in the kernel log."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import architecture_of, event_subject, events, gpu_at, quoted
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.facts import KernelEvent
from onecat.knowledge.xids import xid_meaning

CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


@check(
    "gpu.xid",
    title="The driver reported no GPU error (Xid) since the machine started",
    why="The driver writes each error of a GPU to the kernel log with a number, the Xid. Some are faults of a program, "
    "some mean that the card is lost or its memory is bad.",
    fix=("sudo dmesg | grep -i xid", f"look the number up: {CATALOG}"),
    source=(CATALOG,),
    requires=(requirements.nvidia_hardware, requirements.kernel_log),
)
def gpu_xid(context: Context) -> Iterator[Verdict]:
    """Lines "NVRM: Xid" of the kernel log, with the meaning of each number for the architecture of its GPU."""
    found = events(context, "xid")
    if not found:
        yield Verdict("pass", "The kernel log holds no Xid")
    for event in found:
        yield _judge(context, event)


def _judge(context: Context, event: KernelEvent) -> Verdict:
    gpu = gpu_at(context, event.address)
    architecture = architecture_of(gpu) if gpu else None
    where = event_subject(context, event)
    if event.xid is None:
        return Verdict("info", "The driver reported an error without a number", where, (quoted(event),))
    meaning = xid_meaning(event.xid, event.text, architecture.name if architecture else None)
    if meaning is None:
        return Verdict(
            "info",
            f"Xid {event.xid}: onecat does not know what it means"
            + (f" on {architecture.name} GPUs" if architecture else ""),
            where,
            (quoted(event),),
            fix=(f"look it up: {CATALOG}",),
        )
    index = str(gpu.index) if gpu else "N"
    return Verdict(
        meaning.severity,
        f"Xid {event.xid}: {meaning.title}",
        where,
        (quoted(event),),
        fix=tuple(each.replace("-i N", f"-i {index}") for each in meaning.fix),
        why=meaning.why,
        source=meaning.source,
    )


GSP = "https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/gsp.html"
GSP_TIMEOUTS = "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/446"


@check(
    "gpu.gsp",
    title="The system processor of every GPU (GSP) answers the driver",
    why="From Turing on the driver runs a part of itself on the GPU. When that does not answer, everything that asks "
    "for this GPU hangs, nvidia-smi too. GPUs before Turing have no GSP and lack nothing.",
    fix=("sudo dmesg | grep -i gsp", "sudo reboot, or with nothing using it: sudo nvidia-smi --gpu-reset -i N"),
    source=(GSP, GSP_TIMEOUTS),
    requires=(requirements.nvidia_hardware, requirements.kernel_log),
)
def gpu_gsp(context: Context) -> Iterator[Verdict]:
    """Lines of the kernel log about requests to the GSP that were not answered (their Xid is judged by gpu.xid)."""
    silent = events(context, "gsp-timeout")
    if not silent:
        yield Verdict("pass", "The kernel log tells of no GSP that did not answer")
    version = context.nvidia.driver_version or context.nvidia.kernel_module_version
    known_fault = version is not None and (525,) <= version_key(version) < (525, 105, 17)
    for event in silent:
        gpu = gpu_at(context, event.address)
        yield Verdict(
            "fail",
            "The GPU's system processor did not answer the driver",
            event_subject(context, event),
            (quoted(event), *((f"driver: {version}",) if version else ())),
            fix=(
                *(
                    ("update the driver to 525.105.17 or newer: older ones of 525 are known for it",)
                    if known_fault
                    else ()
                ),
                "sudo reboot, or with nothing using it: sudo nvidia-smi --gpu-reset -i "
                + (str(gpu.index) if gpu else "N"),
                "when a power cycle does not help: https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",
            ),
        )
