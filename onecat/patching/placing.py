"""Where the hunks of a diff fit into a file. The rules are those of `git apply`, and of GNU patch for fuzz.

A hunk fits where all of its old lines are, nearest to the line that it names; one that begins at line 1 only at the
beginning, one without context behind it only at the end; lines that an earlier hunk wrote are not looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onecat.patching.diff import Hunk

SHOWN = 12
"""Lines of a file that are kept as evidence around a conflict."""


@dataclass(frozen=True)
class Fit:
    """Where a hunk was found.

    line: of the changed file, from 1; None when it fits nowhere. offset: lines from where the hunk says.
    fuzz: lines of context given up at each end. places: how many places fit equally well.
    found: what the file has where the hunk belongs, from `found_line`, when it fits nowhere.
    """

    hunk: Hunk
    line: int | None
    offset: int = 0
    fuzz: int = 0
    places: int = 1
    found_line: int = 0
    found: tuple[bytes, ...] = ()

    @property
    def is_exact(self) -> bool:
        return self.line is not None and not self.offset and not self.fuzz


def split_lines(content: bytes) -> list[bytes]:
    """The lines of a file with their ends; only a line feed ends a line."""
    pieces = content.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def apply_hunks(content: bytes, hunks: Sequence[Hunk], fuzz: int = 0) -> tuple[bytes, tuple[Fit, ...]]:
    """The file after all hunks that fit, and where each one was found.

    Parameters:
        fuzz: lines of context at each end of a hunk that may differ.
    """
    lines = split_lines(content)
    written = [False] * len(lines)
    fits = []
    for hunk in hunks:
        fit, start, cut = _find(lines, written, hunk, fuzz)
        fits.append(fit)
        if fit.line is None:
            continue
        old, new = hunk.old, hunk.new
        new = new[cut[0] : len(new) - cut[1]]
        lines[start : start + len(old) - sum(cut)] = new
        written[start : start + len(old) - sum(cut)] = [True] * len(new)
    return b"".join(lines), tuple(fits)


def _find(lines: list[bytes], written: list[bool], hunk: Hunk, fuzz: int) -> tuple[Fit, int, tuple[int, int]]:
    wanted = max(hunk.new_start - 1, 0)
    leading, trailing = hunk.leading, hunk.trailing
    for given_up in range(fuzz + 1):
        context = max(leading, trailing)
        cut = max(0, given_up + leading - context), max(0, given_up + trailing - context)
        if given_up and cut[0] + cut[1] == 0:
            continue
        if cut[0] > leading or cut[1] > trailing:
            break
        old = hunk.old[cut[0] : len(hunk.old) - cut[1]]
        if given_up and not old:
            break
        at_start = not given_up and hunk.old_start <= 1
        at_end = not given_up and not trailing
        places = _places(lines, written, old, wanted + cut[0], at_start, at_end)
        first = next(places, None)
        if first is not None:
            others = sum(1 for _ in places)
            return Fit(hunk, first + 1 - cut[0], first - cut[0] - wanted, given_up, 1 + others), first, cut
    begin = max(0, min(wanted, len(lines) - 1))
    shown = tuple(lines[begin : begin + max(len(hunk.old), SHOWN)])
    return Fit(hunk, None, found_line=begin + 1, found=shown), 0, (0, 0)


def _places(
    lines: list[bytes], written: list[bool], old: Sequence[bytes], wanted: int, at_start: bool, at_end: bool
) -> Iterator[int]:
    """Where the old lines are, nearest first, the later one of two that are equally far."""
    last = len(lines) - len(old)
    if last < 0:
        return
    if at_start or at_end:
        candidates = [0] if at_start else [last]
        if at_start and at_end and last:
            return
    else:
        candidates = _nearest_first(wanted, last)
    block = list(old)
    for start in candidates:
        if lines[start : start + len(block)] == block and not any(written[start : start + len(block)]):
            yield start


def _nearest_first(wanted: int, last: int) -> list[int]:
    start = min(max(wanted, 0), last)
    return sorted(range(last + 1), key=lambda place: (abs(place - start), place < start))
