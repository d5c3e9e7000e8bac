"""When a comparison may end before all of its pairs are measured.

Whoever looks after each pair and stops at the first success finds differences where none are. Here looks are few and
fixed before: at a half and at three quarters of the pairs a difference must show at 99.9 %, and what is left of the
error of 1 % decides at the end (as Haybittle and Peto did: https://en.wikipedia.org/wiki/Haybittle%E2%80%93Peto_boundary).
The errors of all looks add up to 1 % at most, whatever the looks have in common.
"""

from __future__ import annotations

from dataclasses import dataclass

from onecat.observe.statistics.pairing import DECIDE_AT, LEAST_PAIRS

_EARLY = 0.999
_SHARES = (0.5, 0.75)


@dataclass(frozen=True)
class Look:
    """After how many pairs to look, and at what level a difference is then shown."""

    pairs: int
    decide_at: float


def looks(most_pairs: int) -> tuple[Look, ...]:
    """The looks of a comparison of at most so many pairs: the last is the end. Early ones come after whole ABBAs."""
    early = sorted({int(most_pairs * share) // 2 * 2 for share in _SHARES})
    early = [each for each in early if LEAST_PAIRS <= each < most_pairs]
    left = (1 - DECIDE_AT) - len(early) * (1 - _EARLY)
    return (*(Look(each, _EARLY) for each in early), Look(most_pairs, round(1 - left, 6)))
