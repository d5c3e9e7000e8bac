"""What `onecat model pull` prints: progress, the result for a person, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from onecat.checkpoints.numbering import counted
from onecat.render.columns import harmless

if TYPE_CHECKING:
    from onecat.pull import Progress, Pulled

_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_STATES = {"fetched": "fetched", "resumed": "fetched, went on", "present": "was there", "missing": "would be fetched"}
_CHECKS = {"sha256": "SHA-256 as the source tells", "git-blob": "git blob as the hub tells", None: "no checksum told"}


def size(count: float) -> str:
    """Bytes for people, in decimal units as hubs show them."""
    for unit, one in _UNITS:
        if count >= one:
            return f"{count / one:.2f} {unit}" if count < 10 * one else f"{count / one:.1f} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Seconds for people, as `1 h 05 min`, `3 min 20 s`, `12 s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def progress_line(progress: Progress) -> str:
    """One line about how far a pull has come."""
    share = f" of {size(progress.total)}" if progress.total is not None else ""
    percent = f" ({100 * progress.done // progress.total} %)" if progress.total else ""
    left = progress.seconds_left
    rest = f", {duration(left)} left" if left is not None and left < 30 * 86400 else ""
    files = f"{progress.files_done} of {counted(progress.files, 'file')}"
    return f"{size(progress.done)}{share}{percent}, {size(progress.speed)}/s{rest}; {files}"


def document(found: Pulled) -> dict[str, Any]:
    """The result as a JSON-ready document (onecat.model-pull/1)."""
    return {
        "schema": "onecat.model-pull/1",
        "source": found.source,
        "revision": found.revision,
        "directory": str(found.directory.absolute()),
        "dry_run": found.dry_run,
        "files": [asdict(each) for each in found.files],
        "skipped": [asdict(each) for each in found.skipped],
        "notes": list(found.notes),
        "bytes": found.bytes,
        "fetched_bytes": found.fetched_bytes,
        "seconds": round(found.seconds, 3),
        "manifest": str(found.manifest.absolute()) if found.manifest is not None else None,
    }


def lines(found: Pulled) -> list[str]:
    """The result for a person."""
    longest = max((len(each.path) for each in found.files), default=0)
    text = []
    for each in found.files:
        told = size(each.bytes) if each.bytes is not None else "?"
        check = "" if each.state == "missing" else f"; {_CHECKS[each.checked]}"
        text.append(f"{harmless(each.path):<{longest}}  {told:>9}  {_STATES[each.state]}{check}")
    text += [f"{harmless(each.path)}: left out: {each.why}" for each in found.skipped]
    text += [f"note: {harmless(each)}" for each in found.notes]
    revision = f" at {found.revision[:12]}" if found.revision else ""
    all_of_it = f"{size(found.bytes)} in {counted(len(found.files), 'file')}"
    if found.dry_run:
        return [*text, f"{all_of_it} of {found.source}{revision}; nothing was fetched"]
    speed = f", {size(found.fetched_bytes / found.seconds)}/s" if found.fetched_bytes and found.seconds > 0 else ""
    text.append(
        f"{found.directory} is complete: {all_of_it}{revision}; "
        f"{size(found.fetched_bytes)} fetched in {duration(found.seconds)}{speed}"
    )
    return [*text, f"check it again at any time: onecat model verify {found.directory} --hash"]
