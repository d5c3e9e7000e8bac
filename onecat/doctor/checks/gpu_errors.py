"""Memory errors of the GPUs and what was done about them."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import architecture_of, place, subject
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted, told
from onecat.facts import Gpu

PAGE_RETIREMENT = "https://docs.nvidia.com/deploy/dynamic-page-retirement/visibility.html"
ROW_REMAPPING = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/supported-gpus.html"
RECOVERY = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html"
XIDS = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

RETIRED_PAGES_LIMIT = 60
"""Retired pages from which a card counts as worn."""


@check(
    "gpu.ecc-errors",
    title="The GPU memory has no uncorrectable errors",
    why="An uncorrectable error means wrong data: the driver stops the program that met it.",
    fix=("reset the GPU or reboot; when the count rises again, have the card replaced",),
    source=(PAGE_RETIREMENT, XIDS),
    requires=(requirements.gpus,),
)
def gpu_ecc_errors(context: Context) -> Iterator[Verdict]:
    """Uncorrectable ECC errors since the driver was loaded, and over the life of the card."""
    for gpu in context.gpus:
        now, ever = gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate
        if now is None and ever is None:
            reason = "ECC is off" if gpu.ecc_enabled is False else "the counters are not known"
            yield Verdict("skip", f"Not checked: {reason}", subject(gpu))
        elif now:
            yield Verdict(
                "fail",
                f"{counted(now, 'uncorrectable memory error')} since the driver was loaded",
                subject(gpu),
                (f"{place(gpu)}: volatile {now}, aggregate {ever}",),
                fix=("sudo dmesg | grep -i xid", "reboot; when the count rises again, have the card replaced"),
            )
        elif ever:
            since = "none since the driver was loaded" if now == 0 else "none known since the driver was loaded"
            yield Verdict(
                "info",
                f"{counted(ever, 'uncorrectable memory error')} in the past, {since}",
                subject(gpu),
                (f"{place(gpu)}: volatile {now}, aggregate {ever}",),
            )
        elif now is None:
            yield Verdict("skip", "Not checked: the errors since the driver was loaded are not known", subject(gpu))
        else:
            yield Verdict("pass", "No uncorrectable memory errors", subject(gpu))


@check(
    "gpu.retired-pages",
    title="No memory page waits to be retired",
    why="GPUs before Ampere retire bad memory pages when the driver starts next; until then they are used.",
    fix=("reboot, or with nothing using it: sudo nvidia-smi --gpu-reset -i N",),
    source=(PAGE_RETIREMENT,),
    requires=(requirements.gpus,),
)
def gpu_retired_pages(context: Context) -> Iterator[Verdict]:
    """Retired pages and whether some are pending. Ampere and newer remap rows instead and have no such count."""
    for gpu in context.gpus:
        if gpu.retired_pages_pending is None and gpu.retired_pages is None:
            yield Verdict("skip", f"Not checked: {_no_retirement(gpu)}", subject(gpu))
            continue
        evidence = (f"{place(gpu)}: {told(gpu.retired_pages)} retired, pending: {_yes(gpu.retired_pages_pending)}",)
        if gpu.retired_pages_pending:
            yield Verdict(
                "warn",
                "Bad memory pages wait to be retired",
                subject(gpu),
                evidence,
                fix=("sudo reboot", f"or, with nothing using it: sudo nvidia-smi --gpu-reset -i {gpu.index}"),
            )
        elif (gpu.retired_pages or 0) >= RETIRED_PAGES_LIMIT:
            yield Verdict(
                "warn",
                f"{gpu.retired_pages} memory pages are retired: the card is worn",
                subject(gpu),
                evidence,
                fix=("watch the count: nvidia-smi -q -d PAGE_RETIREMENT", "ask the vendor for a replacement"),
            )
        elif gpu.retired_pages_pending is None:
            yield Verdict("skip", "Not checked: whether pages wait to be retired is not known", subject(gpu), evidence)
        else:
            count = (
                counted(gpu.retired_pages, "page") if gpu.retired_pages is not None else "an unknown number of pages"
            )
            yield Verdict("pass", f"{count} retired, none pending", subject(gpu), evidence)


@check(
    "gpu.row-remapping",
    title="The GPU could remap every bad memory row",
    why="Ampere and newer replace bad memory rows by spare ones at the next reset; when the spares are used up the "
    "card is broken.",
    fix=("pending: reboot, or sudo nvidia-smi --gpu-reset -i N", "failed: have the card replaced"),
    source=(ROW_REMAPPING,),
    requires=(requirements.gpus,),
)
def gpu_row_remapping(context: Context) -> Iterator[Verdict]:
    """Whether a remapping has failed or is pending. GPUs before Ampere retire pages instead."""
    for gpu in context.gpus:
        if gpu.remapped_rows_failure is None and gpu.remapped_rows_pending is None:
            yield Verdict("skip", f"Not checked: {_no_remapping(gpu)}", subject(gpu))
        elif gpu.remapped_rows_failure:
            yield Verdict(
                "fail",
                "A bad memory row could not be remapped",
                subject(gpu),
                (f"{place(gpu)}: row remapping failed",),
                fix=("have the card replaced",),
            )
        elif gpu.remapped_rows_pending:
            yield Verdict(
                "warn",
                "A bad memory row waits to be remapped",
                subject(gpu),
                (f"{place(gpu)}: row remapping pending",),
                fix=("sudo reboot", f"or, with nothing using it: sudo nvidia-smi --gpu-reset -i {gpu.index}"),
            )
        elif gpu.remapped_rows_failure is None or gpu.remapped_rows_pending is None:
            yield Verdict("skip", "Not checked: what the driver says of row remapping is cut off", subject(gpu))
        else:
            rows = [each or 0 for each in (gpu.remapped_rows_correctable, gpu.remapped_rows_uncorrectable)]
            known = gpu.remapped_rows_uncorrectable is not None
            evidence = (f"remapped rows: {rows[0]} correctable, {rows[1]} uncorrectable",) if known else ()
            yield Verdict("pass", "No row remapping failed or pending", subject(gpu), evidence)


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "unknown"}[value]


_RETIRING = ("Maxwell", "Pascal", "Volta", "Turing")


def _no_retirement(gpu: Gpu) -> str:
    """Why there is nothing about retired pages."""
    found = architecture_of(gpu)
    if found is not None and found.name not in _RETIRING:
        return f"{found.name} GPUs remap memory rows and do not retire pages"
    return "what the driver says of retired pages is not known, or this GPU has none"


def _no_remapping(gpu: Gpu) -> str:
    """Why there is nothing about row remapping."""
    found = architecture_of(gpu)
    if found is not None and found.name in _RETIRING:
        return f"{found.name} GPUs retire memory pages and do not remap rows"
    return "what the driver says of row remapping is not known, or this GPU has none"


@check(
    "gpu.ecc-mode",
    title="The GPU memory is protected by ECC",
    why="Without ECC a flipped bit changes weights or the KV cache and nobody notices.",
    fix=("sudo nvidia-smi -e 1", "sudo reboot"),
    source=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",),
    requires=(requirements.gpus,),
)
def gpu_ecc_mode(context: Context) -> Iterator[Verdict]:
    """The ECC mode now and after the next start. GPUs without ECC are left out."""
    for gpu in context.gpus:
        now, later = gpu.ecc_enabled, gpu.ecc_enabled_pending
        if now is None:
            yield Verdict("skip", "Not checked: this GPU has no ECC, or its mode is not known", subject(gpu))
        elif later is not None and later != now:
            words = "on" if later else "off"
            yield Verdict(
                "info",
                f"ECC is switched {words} at the next start",
                subject(gpu),
                (f"{place(gpu)}: ECC now {_switch(now)}, pending {_switch(later)}",),
                fix=("sudo reboot",),
            )
        elif now:
            yield Verdict("pass", "ECC is on", subject(gpu))
        else:
            yield Verdict(
                "info",
                "ECC is off: errors of the memory go unseen",
                subject(gpu),
                (f"{place(gpu)}: ECC off",),
                fix=(f"sudo nvidia-smi -i {gpu.index} -e 1", "sudo reboot"),
            )


@check(
    "gpu.ecc-corrected",
    title="The GPU memory needs no correction",
    why="A corrected error does no harm; a number that keeps rising tells that the memory ages.",
    fix=("watch the counts: nvidia-smi -q -d ECC",),
    source=(XIDS,),
    requires=(requirements.gpus,),
)
def gpu_ecc_corrected(context: Context) -> Iterator[Verdict]:
    """Corrected ECC errors since the driver was loaded."""
    for gpu in context.gpus:
        count = gpu.ecc_corrected_volatile
        if count is None:
            reason = "ECC is off" if gpu.ecc_enabled is False else "the counter is not known"
            yield Verdict("skip", f"Not checked: {reason}", subject(gpu))
        elif count:
            yield Verdict(
                "info",
                f"{counted(count, 'corrected memory error')} since the driver was loaded",
                subject(gpu),
                (f"{place(gpu)}: volatile {count}, aggregate {gpu.ecc_corrected_aggregate}",),
                fix=("look again later: nvidia-smi -q -d ECC",),
            )
        else:
            yield Verdict("pass", "No corrected memory errors since the driver was loaded", subject(gpu))


def _switch(value: bool) -> str:
    return "on" if value else "off"
