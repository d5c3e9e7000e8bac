"""Unified diffs as `git diff` writes them, read into what each file becomes; refused is what a patch must not do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.errors import OnecatError
from onecat.patching.source import check_path

if TYPE_CHECKING:
    from unidiff.patch import PatchedFile

CONTEXT, ADDED, REMOVED = " ", "+", "-"
_MODES = {"100644": False, "100755": True}
_KINDS = {"120000": "a symbolic link", "160000": "a submodule"}
_NOTHING = "/dev/null"


@dataclass(frozen=True)
class Hunk:
    """One block of a diff.

    old_start, new_start: line numbers from 1 before and after. lines: pairs of ` `, `+` or `-` and the line with its
    line end, which the last line of a file may lack. section: what git writes behind the second @@.
    """

    old_start: int
    new_start: int
    lines: tuple[tuple[str, bytes], ...]
    section: str = ""

    @property
    def old(self) -> tuple[bytes, ...]:
        """The lines that must be there before."""
        return tuple(line for tag, line in self.lines if tag != ADDED)

    @property
    def new(self) -> tuple[bytes, ...]:
        """The lines that are there afterwards."""
        return tuple(line for tag, line in self.lines if tag != REMOVED)

    @property
    def leading(self) -> int:
        """How many lines of context come first."""
        return next((at for at, (tag, _) in enumerate(self.lines) if tag != CONTEXT), len(self.lines))

    @property
    def trailing(self) -> int:
        """How many lines of context come last."""
        return next((at for at, (tag, _) in enumerate(reversed(self.lines)) if tag != CONTEXT), len(self.lines))

    def reversed(self) -> Hunk:
        """The hunk that takes this one back."""
        swap = {ADDED: REMOVED, REMOVED: ADDED, CONTEXT: CONTEXT}
        return Hunk(self.new_start, self.old_start, tuple((swap[tag], line) for tag, line in self.lines), self.section)

    @property
    def header(self) -> str:
        """Its first line, as git writes it."""
        old, new = _range(self.old_start, len(self.old)), _range(self.new_start, len(self.new))
        return f"@@ -{old} +{new} @@{' ' + self.section if self.section else ''}"


@dataclass(frozen=True)
class FileChange:
    """What a diff makes of one file.

    old, new: its path before and after; None where it is not there. old_executable, new_executable: what the diff says
    about its mode, None where it says nothing.
    """

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...]
    old_executable: bool | None = None
    new_executable: bool | None = None

    @property
    def path(self) -> str:
        """The path that a person calls it by."""
        return self.new or self.old or ""

    def reversed(self) -> FileChange:
        """The change that takes this one back."""
        return FileChange(
            self.new,
            self.old,
            tuple(hunk.reversed() for hunk in self.hunks),
            self.new_executable,
            self.old_executable,
        )


def parse_diff(text: str, where: str) -> tuple[FileChange, ...]:
    """The changes that a diff describes.

    Parameters:
        text: the diff; bytes that are not UTF-8 as surrogates. where: its file, for messages.

    Raises OnecatError when it is no whole diff, or leaves the source tree, or has binary hunks, links or copies.
    """
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    try:
        files = PatchSet(lines)
    except UnidiffParseError as error:
        raise OnecatError(
            "a patch is no well-formed diff",
            expected="the output of git diff, its line counts as they are",
            where=_at(where, lines, error),
            details=[str(error).rstrip()],
        ) from error
    read = sum(_lines_read(file) for file in files)
    changes = tuple(_change(file, where) for file in files)
    if not changes or read != len(lines):
        raise OnecatError(
            "a patch holds no change" if not changes else "a patch has lines that belong to no file or hunk",
            expected="the output of git diff, without a mail's header and signature",
            where=where,
        )
    touched = [path for change in changes for path in sorted({change.old, change.new} - {None}, key=str)]
    for path in touched:
        if touched.count(path) > 1:
            raise OnecatError(f"a patch changes {path} twice", expected="one section for each file", where=where)
    return changes


def _at(where: str, lines: Sequence[str], error: Exception) -> str:
    """The file, with the number of the line that the parser stopped at where its message quotes just one line."""
    quoted = str(error).partition(": ")[2].rstrip("\n")
    numbers = [number for number, line in enumerate(lines, 1) if line.rstrip("\n") == quoted]
    return f"{where}:{numbers[0]}" if len(numbers) == 1 else where


def _lines_read(file: PatchedFile) -> int:
    return len(file.patch_info or ()) + (2 if len(file) else 0) + sum(1 + len(hunk) for hunk in file)


def _change(file: PatchedFile, where: str) -> FileChange:
    info = [line.rstrip("\n") for line in file.patch_info or ()]
    old, new = _path(file.source_file, where), _path(file.target_file, where)
    shown = new or old or ""
    if file.is_binary_file or any(line.startswith(("Binary files ", "GIT binary patch")) for line in info):
        raise _refused(
            f"a patch has a binary hunk, for {shown}", "text; a binary file belongs in the series' add/", where
        )
    said = _words(info)
    if "copy from" in said:
        raise _refused(f"a patch copies a file to {shown}", "git diff --no-renames", where)
    if "rename from" in said:
        old, new = _clean(said["rename from"], where), _clean(said["rename to"], where)
    elif old != new and None not in (old, new):
        raise _refused(f"a patch names one file {old} and {new}", "the same path under a/ and b/", where)
    modes = {key: value for key, value in said.items() if key.endswith("mode")}
    for mode in [*modes.values(), *(line.rpartition(" ")[2] for line in info if re.match(r"index \S+ \d+$", line))]:
        if mode not in _MODES:
            kind = _KINDS.get(mode, f"of mode {mode}")
            raise _refused(f"a patch makes {shown} {kind}", "a plain file (mode 100644 or 100755)", where)
    return FileChange(
        old,
        new,
        tuple(_hunk(hunk) for hunk in file),
        _MODES.get(modes.get("old mode") or modes.get("deleted file mode", "")),
        _MODES.get(modes.get("new mode") or modes.get("new file mode", "")),
    )


def _words(info: list[str]) -> dict[str, str]:
    """What the lines between `diff --git` and the first hunk say."""
    kinds = r"copy from|copy to|rename from|rename to|old mode|new mode|new file mode|deleted file mode"
    found = (re.match(rf"({kinds}) (.*)$", line) for line in info)
    return {match[1]: match[2] for match in found if match}


def _path(name: str, where: str) -> str | None:
    """A path of a diff's header without its a/ or b/."""
    if name == _NOTHING:
        return None
    name = _unquoted(name)
    if not name.startswith(("a/", "b/")):
        raise _refused(f"a patch names {name}", "paths under a/ and b/, as git diff writes them", where)
    return check_path(name[2:], where)


def _clean(name: str, where: str) -> str:
    return check_path(_unquoted(name), where)


def _unquoted(name: str) -> str:
    """A name without the quotes that git puts around unusual characters."""
    if not (name.startswith('"') and name.endswith('"') and len(name) > 1):
        return name
    escapes = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}

    def byte(match: re.Match[bytes]) -> bytes:
        text = match[1].decode()
        return bytes([int(text, 8) & 255 if text.isdigit() else escapes[text]])

    raw = name[1:-1].encode("utf-8", "surrogateescape")
    return re.sub(rb'\\([0-7]{3}|[abtnvfr"\\])', byte, raw).decode("utf-8", "surrogateescape")


def _hunk(hunk: Any) -> Hunk:
    lines: list[tuple[str, bytes]] = []
    for line in hunk:
        if line.line_type == "\\":
            tag, value = lines[-1]
            lines[-1] = tag, value.removesuffix(b"\n")
        elif line.line_type:
            lines.append((line.line_type, line.value.encode("utf-8", "surrogateescape")))
    return Hunk(hunk.source_start, hunk.target_start, tuple(lines), hunk.section_header)


def _refused(found: str, expected: str, where: str) -> OnecatError:
    return OnecatError(found, expected=expected, where=where)


def _range(start: int, count: int) -> str:
    return f"{start}" if count == 1 else f"{start},{count}"
