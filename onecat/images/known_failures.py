"""Why a build failed, from the last words of the builder: pure, against the table of known failures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onecat.knowledge.build_failures import BuildFailure, build_failures

LOOKED_THROUGH = 2000
"""Lines at the end of a step's output that are looked through: a parallel compiler goes on for a while after the first
failure, and what a step said long before it failed is not why."""


@dataclass(frozen=True)
class Explanation:
    """A known failure that a log shows.

    failure: the row's name. cause: one sentence. fix: commands. evidence: the lines that showed it, first ones first.
    """

    failure: str
    cause: str
    fix: tuple[str, ...]
    evidence: tuple[str, ...]


def explain(lines: Sequence[str], values: Mapping[str, str]) -> Explanation | None:
    """The first known failure that the output of a failed step shows, or None.

    Parameters:
        lines: output of the step that failed.
        values: what fills {profile}, {jobs}, {max_jobs} and {build} in the texts.
    """
    last = lines[-LOOKED_THROUGH:]
    for failure in build_failures():
        found = _evidence(failure, last)
        if found:
            names = {**values, **_groups(found)}
            return Explanation(
                failure.id,
                _filled(failure.cause, names),
                tuple(_filled(step, names) for step in failure.fix),
                tuple(dict.fromkeys(match.string.strip() for match in found))[:3],
            )
    return None


def _evidence(failure: BuildFailure, lines: Sequence[str]) -> list[re.Match[str]]:
    return [
        match
        for line in lines
        if not (failure.without and failure.without.search(line))
        for match in [next(filter(None, (pattern.search(line) for pattern in failure.patterns)), None)]
        if match
    ]


def _groups(matches: Sequence[re.Match[str]]) -> dict[str, str]:
    """The named groups of the matches; `name2` is another pattern's `name`. The first value of a name counts."""
    found: dict[str, str] = {}
    for match in matches:
        for name, value in match.groupdict().items():
            if value:
                found.setdefault(name.rstrip("0123456789"), value)
    return found


def _filled(text: str, values: Mapping[str, str]) -> str:
    """`text` with its {names} filled; a name that nothing was found for is written in capitals, to be replaced."""
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[1].upper().replace("_", "-")), text)
