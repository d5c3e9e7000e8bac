"""What the server's log says since it was started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject
from onecat.observe import Diagnosis, diagnose
from onecat.observe.diagnosis import plain

MOST_LINES = 100_000
# vLLM: `ERROR 11-30 21:12:00 [core.py:1] ...`, perhaps after `(EngineCore pid=1)`; uvicorn: `ERROR:    ...`.
_WRONG = re.compile(r"^(?:\([^)]*\) )?(?:ERROR|CRITICAL)[ :]|^Traceback \(most recent call last\)")


@dataclass(frozen=True)
class LogSeen:
    """lines: how many were read. diagnoses: what onecat makes of them, of every standing. unexplained: lines of level
    ERROR and above that none of the diagnoses quotes, with their numbers."""

    lines: int
    diagnoses: tuple[Diagnosis, ...]
    unexplained: tuple[tuple[int, str], ...]


@observer(LogSeen, place=100)
def observe_log(subject: Subject) -> LogSeen:
    """All of the release's log that is kept."""
    from onecat.deploy.servers import server_of

    return seen_in(server_of(subject.machine, subject.look.release).last_lines(MOST_LINES))


def seen_in(lines: Sequence[str]) -> LogSeen:
    """What these lines say. Pure."""
    found = diagnose(lines, every=True)
    quoted = {each.line for diagnosis in found for each in diagnosis.evidence}
    wrong = [(number, text) for number, text in enumerate(map(plain, lines), 1) if _WRONG.search(text)]
    return LogSeen(len(lines), found, tuple((number, text) for number, text in wrong if number not in quoted))
