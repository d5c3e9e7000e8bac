"""What the NVIDIA driver reported of the GPUs in the kernel log."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.findings import Status
from onecat.doctor.hardware import architecture_of, gpu_at
from onecat.doctor.kernel_log import event_subject, events, quoted
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.facts import Gpu, KernelEvent
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
    to_pass=(requirements.whole_kernel_log,),
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
    past = _what_tells_that_it_is_past(context, gpu, event.xid)
    return Verdict(
        _MILDER[meaning.severity] if past else meaning.severity,
        f"Xid {event.xid}: {meaning.title}" + (" (in the past)" if past else ""),
        where,
        (quoted(event), *((past,) if past else ())),
        fix=tuple(each.replace("-i N", f"-i {index}") for each in meaning.fix),
        why=meaning.why,
        source=meaning.source,
    )


_MILDER: dict[Status, Status] = {"fail": "warn", "warn": "info", "info": "info"}
_UNCORRECTABLE = (48, 94, 95, 140, 171, 172)
_WAITS_FOR_RESET = (63,)
_GSP_SILENT = (119, 120)


def _what_tells_that_it_is_past(context: Context, gpu: Gpu | None, xid: int) -> str | None:
    """What shows that the GPU has been reset since, as the log of a machine that runs on still tells of it.

    The counter of uncorrectable errors begins anew with each start of the driver and each reset; a GPU whose system
    processor is silent cannot tell its temperature.
    """
    if gpu is None or gpu.error is not None or context.facts.collected_at is None:
        return None
    waits = gpu.remapped_rows_pending or gpu.retired_pages_pending or gpu.remapped_rows_failure
    if xid in _UNCORRECTABLE and gpu.ecc_uncorrected_volatile == 0 and not waits:
        return "uncorrectable errors since the driver was loaded or the GPU was reset: 0"
    if xid in _WAITS_FOR_RESET and False in (gpu.remapped_rows_pending, gpu.retired_pages_pending) and not waits:
        return "nothing waits to be retired or remapped"
    return _answers_now(context, gpu) if xid in _GSP_SILENT else None


def _answers_now(context: Context, gpu: Gpu | None) -> str | None:
    """That the GPU told its temperature when it was probed, after the log's lines."""
    if gpu is None or context.facts.collected_at is None or gpu.error is not None or gpu.temperature_celsius is None:
        return None
    return f"it answers now: {gpu.temperature_celsius} °C"


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
    to_pass=(requirements.whole_kernel_log,),
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
        past = _answers_now(context, gpu)
        yield Verdict(
            "warn" if past else "fail",
            "The GPU's system processor did not answer the driver" + (" (in the past)" if past else ""),
            event_subject(context, event),
            (quoted(event), *((past,) if past else ()), *((f"driver: {version}",) if version else ())),
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
