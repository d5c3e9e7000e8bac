"""What the server's log says since it was started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject
from onecat.observe import Diagnosis, diagnose
from onecat.observe.diagnosis import plain
from onecat.observe.lines import read_line
from onecat.observe.tracebacks import chains

MOST_LINES = 100_000
_TRACEBACK = "Traceback (most recent call last)"
# vLLM: `ERROR 11-30 21:12:00 [core.py:1] ...`, perhaps after `(EngineCore pid=1)`; uvicorn: `ERROR:    ...`.
_WRONG = re.compile(r"^(?:\([^)]*\) )?(?:ERROR|CRITICAL)[ :]|^Traceback \(most recent call last\)")


@dataclass(frozen=True)
class LogSeen:
    """lines: how many were read. diagnoses: what onecat makes of them, of every standing. unexplained: lines of level
    ERROR and above that none of the diagnoses quotes, with their numbers; of a traceback, the exception that was raised
    first."""

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
    wrong = {number: text for number, text in enumerate(map(plain, lines), 1) if _WRONG.search(text)}
    if any(_TRACEBACK in text for text in wrong.values()):
        for chain in chains(read_line(line, number) for number, line in enumerate(lines, 1)):
            begin, end = chain.raised[0].begin, max(each.end or each.begin for each in chain.raised)
            # A server may write its level before each line of a traceback: all of them are one error.
            for number in [each for each in wrong if begin <= each <= end]:
                if read_line(lines[number - 1]).process == chain.process:
                    del wrong[number]
            if chain.root is not None and quoted.isdisjoint(range(begin, end + 1)):
                wrong[chain.root.number] = chain.root.text
    return LogSeen(
        len(lines), found, tuple((number, text) for number, text in sorted(wrong.items()) if number not in quoted)
    )
