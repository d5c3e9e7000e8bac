"""Whether the probe could see everything."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check

GPU_SOURCES = ("driver", "load", "nvml", "pci", "toolkit")
"""The probe's sources that tell of NVIDIA's GPUs only."""


@check(
    "probe.sources",
    title="The probe could read every source of facts",
    why="What could not be read could not be judged: the checks that need it are skipped. A source that hangs is often "
    "the fault itself: a driver call on a dead GPU, a lost network mount.",
    fix=("run it as root, or with a longer --timeout",),
    source=("https://man7.org/linux/man-pages/man5/proc.5.html",),
)
def probe_sources(context: Context) -> Iterator[Verdict]:
    """The notes of the probe about sources that hung or broke. A source that is absent is no fault."""
    hung = [note for note in context.facts.notes if note.kind == "timeout"]
    broken = [note for note in context.facts.notes if note.kind == "error"]
    if not hung and not broken:
        if context.facts.collected_at is None:
            yield Verdict("skip", "Not checked: these facts were not collected by the probe")
        else:
            yield Verdict("pass", "No source of facts hung or broke")
    for note in hung:
        is_of_gpus = note.source in GPU_SOURCES and not context.concerns_gpus
        yield Verdict(
            "info" if is_of_gpus else "warn",
            f"The source {note.source} hung",
            note.source,
            (note.text,),
            fix=("see what it waits for: sudo dmesg -T | tail -50", "if the host is merely slow: a longer --timeout"),
        )
    for note in broken:
        yield Verdict("info", f"The source {note.source} could not be read in full", note.source, (note.text,))


@check(
    "probe.permissions",
    title="The probe could see what only root can see",
    why="Some facts are for root alone: without them the checks that need them are skipped, and nothing else is lost.",
    fix=("onecat doctor --sudo",),
    source=("https://man7.org/linux/man-pages/man5/proc.5.html",),
)
def probe_permissions(context: Context) -> Iterator[Verdict]:
    """The notes of the probe about facts that this user may not have."""
    refused = [note for note in context.facts.notes if note.kind == "permission"]
    if refused:
        yield Verdict(
            "info",
            "Some facts are for root alone",
            evidence=tuple(f"{note.source}: {note.text}" for note in refused),
            fix=("to have them too: onecat doctor --sudo",),
        )
    elif context.facts.collected_at is None:
        yield Verdict("skip", "Not checked: these facts were not collected by the probe")
    else:
        yield Verdict("pass", "This user could see every fact")
