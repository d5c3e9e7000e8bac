"""How a patch series stands to another release: a report for people, a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onecat.patching.rebase import Move, Rebase, Surroundings
from onecat.patching.report import found_lines, hunk_lines
from onecat.patching.writing import hunk_text
from onecat.render.columns import wrap

REBASE = "onecat.patch-rebase/1"

LONGEST_HUNK = 40
"""Lines of one change of upstream that people see; the document has all of it."""


def rebase_lines(rebase: Rebase) -> Iterator[str]:
    """The verdict of each patch first, then what stands against each one."""
    series, upstream = rebase.series, rebase.upstream
    whole = sum(move.is_whole for move in rebase.moves)
    yield f"{series.name} on {upstream.distribution} {upstream.version}: {whole} of {len(rebase.moves)} patches move"
    width = max((len(move.patch.name) for move in rebase.moves), default=0)
    for move in rebase.moves:
        yield f"{move.patch.name:<{width}}  {_verdict(move)}"
    yield from (f"moved: {old} is {new} there" for old, new in sorted(rebase.moved.items()))
    yield from (f"vanished: {path}" for path in rebase.vanished)
    yield from (f"taken: upstream has a file {path} of its own" for path in rebase.taken)
    for move in rebase.moves:
        if move.word == "to drop":
            yield ""
            yield from wrap(f"{move.patch.name} can be dropped: its guards hold without it", 80)
            yield from wrap(f"drop when: {move.patch.drop_when}", 80, "  ", "    ")
        elif not move.is_whole:
            yield ""
            yield from _obstacles(move)


def rebase_document(rebase: Rebase) -> dict[str, Any]:
    """The report in the form onecat.patch-rebase/1."""
    return {
        "schema": REBASE,
        "series": rebase.series.name,
        "upstream": dict(vars(rebase.upstream)),
        "whole": rebase.is_whole,
        "moved": rebase.moved,
        "vanished": list(rebase.vanished),
        "taken": list(rebase.taken),
        "patches": [_document(move) for move in rebase.moves],
    }


def _verdict(move: Move) -> str:
    conflicts, offsets, total = _counts(move)
    words = [move.word]
    if total and conflicts:
        words.append(f"{total - conflicts} of {total} hunks fit")
    if offsets and not conflicts:
        words.append(f"in {offsets} of {total} hunks")
    if move.guards:
        words.append("1 guard does not hold" if len(move.guards) == 1 else f"{len(move.guards)} guards do not hold")
    return ", ".join(words)


def _counts(move: Move) -> tuple[int, int, int]:
    conflicts = sum(each.is_conflict for each in move.surroundings)
    offsets = sum(each.fit.line is not None for each in move.surroundings)
    return conflicts, offsets, sum(len(change.fits) for change in move.changes)


def _obstacles(move: Move) -> Iterator[str]:
    yield f"{move.patch.name}: {_verdict(move)}"
    yield from (f"  {change.problem}" for change in move.changes if change.problem is not None)
    for guard in move.guards:
        yield from wrap(str(guard), 80, "  ", "    ")
    for each in move.surroundings:
        if each.is_there:
            yield f"  {each.path}: upstream has hunk {each.fit.hunk.header} already"
        if each.is_conflict:
            yield f"  {each.path}: this hunk fits nowhere"
            yield from (f"    {line}" for line in (each.fit.hunk.header, *hunk_lines(each.fit)))
            yield from _around(each)


def _around(each: Surroundings) -> Iterator[str]:
    if each.upstream:
        yield "  upstream changed there:"
        for hunk in each.upstream:
            lines = _text(hunk_text(hunk))
            yield from (f"    {line}" for line in lines[:LONGEST_HUNK])
            if len(lines) > LONGEST_HUNK:
                yield f"    ... and {len(lines) - LONGEST_HUNK} lines more"
    elif each.fit.found:
        yield f"  the file has from line {each.fit.found_line}:"
        yield from (f"    {line}" for line in found_lines(each.fit))


def _document(move: Move) -> dict[str, Any]:
    conflicts, offsets, total = _counts(move)
    return {
        "name": move.patch.name,
        "verdict": move.word,
        "drop_when": move.patch.drop_when,
        "hunks": total,
        "hunks_with_offset": offsets,
        "hunks_in_conflict": conflicts,
        "problems": [change.problem for change in move.changes if change.problem is not None],
        "guards": [str(guard) for guard in move.guards],
        "surroundings": [
            {
                "file": each.path,
                "hunk": _text(hunk_text(each.fit.hunk)),
                "line": each.fit.line,
                "offset": each.fit.offset,
                "fuzz": each.fit.fuzz,
                "is_there": each.is_there,
                "upstream": [_text(hunk_text(hunk)) for hunk in each.upstream],
            }
            for each in move.surroundings
        ],
    }


def _text(text: str) -> list[str]:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").splitlines()
