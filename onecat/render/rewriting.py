"""One line about how far a checkpoint that is written tensor by tensor has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onecat.render.columns import harmless
from onecat.render.pulls import duration, size

if TYPE_CHECKING:
    from onecat.nvfp4.rewriting import Progress


def progress_line(progress: Progress) -> str:
    """Bytes of the source that are done, the speed, the time that is left, and what it works on."""
    percent = f" ({100 * progress.done // progress.total} %)" if progress.total else ""
    done = f"{size(progress.done)} of {size(progress.total)}{percent}"
    if progress.checked:
        return f"{done}, checking what an earlier run made; {harmless(progress.module)}"
    left = progress.seconds_left
    rest = f", {duration(left)} left" if left is not None and left < 30 * 86400 else ""
    return f"{done}, {size(progress.speed)}/s{rest}; {harmless(progress.module)}"
