"""Which names of remote files may become files below the target directory. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from onecat.checkpoints.pulled import STATE_DIRECTORY
from onecat.errors import ExitCode, OnecatError

LONGEST_SEGMENT = 200
"""Bytes of one name: file systems take 255, and a part has a longer name than its file."""
LONGEST_PATH = 1024
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They have a terminal show a name backwards (Unicode Standard Annex 9, 2)."""
_FORBIDDEN_SEGMENTS = (STATE_DIRECTORY, ".git", "lost+found")
"""A repository's own folder would let a listing plant hooks that git runs."""


def checked_path(text: str, source: str) -> str:
    """`text` as the relative path of a file. Raises OnecatError for one that leads elsewhere or names no file.

    Parameters:
        source: where the name was read, for the message.
    """
    why = _fault(text)
    if why is not None:
        raise _refused(text, why, source)
    return text


def checked_name(text: str, source: str) -> str:
    """`text` as the name of one file or directory of a listing. Raises OnecatError as `checked_path` does."""
    if "/" in text:
        raise _refused(text, "a row of a listing is one name", source)
    return checked_path(text, source)


def _refused(text: str, why: str, source: str) -> OnecatError:
    return OnecatError(
        f"the listing names a file {text[:200]!r}: {why}",
        expected="relative paths below the target directory, without `..`",
        where=source,
        next_steps=["do not use this source: a listing with such a name is broken or hostile"],
        code=ExitCode.NO,
    )


def _fault(text: str) -> str | None:
    if not text:
        return "it is empty"
    if any(unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") or each in _REORDERING for each in text):
        return "it has control characters"
    if text.startswith("/"):
        return "it is absolute"
    if "\\" in text:
        return "it has a backslash"
    if len(text.encode()) > LONGEST_PATH:
        return "it is too long"
    for segment in text.split("/"):
        if segment in ("", ".", ".."):
            return f"it has a part {segment!r}"
        if len(segment.encode()) > LONGEST_SEGMENT:
            return "a part of it is too long"
        if segment.casefold() in _FORBIDDEN_SEGMENTS:
            return f"{segment} is not for others to write"
    return None


def check_together(paths: Iterable[str], source: str, *, any_case: bool = False) -> None:
    """Raises OnecatError when one path is there twice, or one is a file and a directory at once.

    Parameters:
        any_case: the file system holds names for the same that differ in case alone, or in how an accent is written.
    """
    seen: set[str] = set()
    for named in paths:
        path = unicodedata.normalize("NFC", named).casefold() if any_case else named
        if path in seen:
            raise _clash(f"the listing names {path} twice", source)
        seen.add(path)
    for path in seen:
        parts = path.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in seen:
                raise _clash(f"the listing names {'/'.join(parts[:end])} as a file and as a directory", source)


def _clash(found: str, source: str) -> OnecatError:
    return OnecatError(found, expected="each path once", where=source, code=ExitCode.NO)
