"""Memory errors of the GPUs and what was done about them."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.hardware import place, subject
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted

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
            yield Verdict(
                "info",
                f"{counted(ever, 'uncorrectable memory error')} in the past, none since the driver was loaded",
                subject(gpu),
                (f"{place(gpu)}: volatile 0, aggregate {ever}",),
            )
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
            yield Verdict("skip", "Not checked: this GPU does not retire pages (Ampere and newer)", subject(gpu))
            continue
        evidence = (f"{place(gpu)}: {gpu.retired_pages} retired, pending: {_yes(gpu.retired_pages_pending)}",)
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
                fix=(f"have the card replaced (the limit is {RETIRED_PAGES_LIMIT})",),
            )
        else:
            yield Verdict("pass", f"{gpu.retired_pages} pages retired, none pending", subject(gpu), evidence)


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
            yield Verdict("skip", "Not checked: this GPU does not remap rows (before Ampere)", subject(gpu))
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
        else:
            yield Verdict("pass", "No row remapping failed or pending", subject(gpu))


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "unknown"}[value]
