"""Whether the probe could see everything."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check


@check(
    "probe.sources",
    title="The probe could read every source of facts",
    why="What could not be read could not be judged: the checks that need it are skipped.",
    fix=("run it as root, or with a longer --timeout",),
    source=("https://man7.org/linux/man-pages/man5/proc.5.html",),
)
def probe_sources(context: Context) -> Iterator[Verdict]:
    """The notes of the probe about sources that hung, were forbidden or broke. A source that is absent is no fault."""
    notes = [note for note in context.facts.notes if note.kind != "absent"]
    if not notes and context.facts.collected_at is None:
        yield Verdict("skip", "Not checked: these facts were not collected by the probe")
    elif not notes:
        yield Verdict("pass", "Every source could be read")
    for note in notes:
        fixes = {"permission": ("run it as root to see more",), "timeout": ("try a longer --timeout",)}
        yield Verdict(
            "info",
            f"The source {note.source} could not be read in full",
            note.source,
            (f"{note.kind}: {note.text}",),
            fix=fixes.get(note.kind, ()),
        )
