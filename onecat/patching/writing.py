"""Diffs as `git diff` writes them, made from files in memory."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence

from onecat.errors import OnecatError
from onecat.patching.diff import ADDED, CONTEXT, REMOVED, Hunk
from onecat.patching.placing import split_lines
from onecat.patching.source import SourceFile

CONTEXT_LINES = 3
_NOTHING = "/dev/null"
_NO_NEWLINE = "\\ No newline at end of file\n"


def write_diff(changes: Iterable[tuple[str, SourceFile | None, SourceFile | None]]) -> str:
    """The diff of some files, each as path, file before and file after; None where it is not there.

    Raises OnecatError when one of them is binary.
    """
    return "".join(_file_diff(path, before, after) for path, before, after in sorted(changes, key=lambda row: row[0]))


def make_hunks(before: bytes, after: bytes) -> tuple[Hunk, ...]:
    """The hunks that lead from one content to another."""
    old, new = split_lines(before), split_lines(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return tuple(_hunk(old, new, group) for group in matcher.get_grouped_opcodes(CONTEXT_LINES))


def hunk_text(hunk: Hunk) -> str:
    """A hunk as it stands in a diff."""
    rows = [hunk.header + "\n"]
    for tag, line in hunk.lines:
        text = line.decode("utf-8", "surrogateescape")
        rows.append(tag + text if text.endswith("\n") else f"{tag}{text}\n{_NO_NEWLINE}")
    return "".join(rows)


def _file_diff(path: str, before: SourceFile | None, after: SourceFile | None) -> str:
    if before == after:
        return ""
    for file in (before, after):
        if file is not None and b"\0" in file.content:
            raise OnecatError(f"{path} is binary", expected="text; binary files belong in the series' add/", where=path)
    old, new = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    rows = [f"diff --git {old} {new}\n"]
    modes = [_mode(before), _mode(after)]
    if before is None:
        rows.append(f"new file mode {modes[1]}\n")
    elif after is None:
        rows.append(f"deleted file mode {modes[0]}\n")
    elif modes[0] != modes[1]:
        rows += [f"old mode {modes[0]}\n", f"new mode {modes[1]}\n"]
    contents = [b"" if file is None else file.content for file in (before, after)]
    if contents[0] != contents[1] or None in (before, after):
        same = f" {modes[0]}" if modes[0] == modes[1] and None not in (before, after) else ""
        rows.append(f"index {_blob(before)}..{_blob(after)}{same}\n")
    hunks = make_hunks(contents[0], contents[1])
    if hunks:
        tab = "\t" if " " in path else ""
        rows.append(f"--- {old + tab if before else _NOTHING}\n+++ {new + tab if after else _NOTHING}\n")
    return "".join([*rows, *map(hunk_text, hunks)])


def _hunk(old: Sequence[bytes], new: Sequence[bytes], group: Sequence[tuple[str, int, int, int, int]]) -> Hunk:
    lines: list[tuple[str, bytes]] = []
    for kind, first, last, new_first, new_last in group:
        if kind == "equal":
            lines += [(CONTEXT, line) for line in old[first:last]]
        else:
            lines += [(REMOVED, line) for line in old[first:last]]
            lines += [(ADDED, line) for line in new[new_first:new_last]]
    starts = group[0][1], group[0][3]
    counts = group[-1][2] - starts[0], group[-1][4] - starts[1]
    old_start, new_start = (start + 1 if count else start for start, count in zip(starts, counts, strict=True))
    return Hunk(old_start, new_start, tuple(lines), _section(old[: starts[0]]))


def _section(lines: Sequence[bytes]) -> str:
    """What git shows behind the second @@: the last line before that begins like a definition, 80 bytes of it."""
    for line in reversed(lines):
        if re.match(rb"[A-Za-z_$]", line):
            return line.rstrip()[:80].decode("utf-8", "replace").replace("\ufffd", "")
    return ""


def _mode(file: SourceFile | None) -> str:
    return "100755" if file is not None and file.executable else "100644"


def _blob(file: SourceFile | None) -> str:
    """The first digits of git's name for a content."""
    if file is None:
        return "0" * 10
    return hashlib.sha1(b"blob %d\0" % len(file.content) + file.content, usedforsecurity=False).hexdigest()[:10]


def _quoted(name: str) -> str:
    raw = name.encode("utf-8", "surrogateescape")
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in raw):
        return name
    return '"' + "".join(chr(b) if 0x20 <= b < 0x7F and b not in b'"\\' else f"\\{b:03o}" for b in raw) + '"'
