"""Which line of a server's log stands for which phase of its start."""

from __future__ import annotations

import re
from functools import cache

from onecat.engines.records import Phase
from onecat.resources import read_table


def phase_of(line: str) -> Phase | None:
    """The phase that a log line tells of (without terminal control codes), or None for all other lines."""
    for pattern, name, text in _rows():
        found = pattern.search(line)
        if found:
            percent = found.groupdict().get("percent")
            return Phase(name, text, None if percent is None else min(int(percent), 100))
    return None


@cache
def _rows() -> tuple[tuple[re.Pattern[str], str, str], ...]:
    from onecat.engines.tables import ROOM

    return tuple(
        (re.compile(row["pattern"]), row["phase"], row["text"]) for row in read_table(ROOM / "log_phases.yaml")
    )
