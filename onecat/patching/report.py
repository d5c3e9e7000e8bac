"""What stands between a patch and a tree, in lines for a person."""

from __future__ import annotations

from onecat.patching.placing import Fit
from onecat.patching.states import PatchState


def conflict_lines(state: PatchState) -> list[str]:
    """Each hunk of a patch that does not fit beside what the file has there, and each guard that does not hold."""
    lines = []
    for change in state.changes:
        if change.problem is not None:
            lines.append(f"{state.name}: {change.problem}")
            continue
        for fit in change.conflicts:
            lines += [f"{state.name}: {change.path}: hunk {fit.hunk.header} fits nowhere", *hunk_lines(fit)]
            if fit.found:
                lines += [f"{change.path} has from line {fit.found_line}:", *found_lines(fit)]
    return lines + [f"{state.name}: {guard}" for guard in state.guards]


def hunk_lines(fit: Fit) -> list[str]:
    """The hunk as the patch has it."""
    return [tag + _text(line) for tag, line in fit.hunk.lines]


def found_lines(fit: Fit) -> list[str]:
    """What the file has where the hunk belongs, with line numbers."""
    return [f"{fit.found_line + at:>6}  {_text(line)}" for at, line in enumerate(fit.found)]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace").rstrip("\n")
