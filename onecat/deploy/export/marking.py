"""The lines on top of every exported file: who wrote it, whether it is still as written, what to do with it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

_MARKER = re.compile(r"^# Written by `onecat export ([a-z]+)`; content sha256 ([0-9a-f]{16})\.$", re.MULTILINE)
_JSON_MARKER = re.compile(r"Written by `onecat export [a-z]+`; content sha256 ([0-9a-f]{16})\.")
_HEAD = 4096
_NO_DIGEST = "0" * 16


def marked(form: str, notes: Sequence[str], body: str) -> str:
    """`body` with the marker line and the notes as comments before it; a `#!` line stays the first one."""
    first, rest = "", body
    if body.startswith("#!"):
        first, _, rest = body.partition("\n")
        first += "\n"
    content = "".join(f"# {line}".rstrip() + "\n" for line in _lines(notes)) + rest
    return f"{first}# Written by `onecat export {form}`; content sha256 {_digest(content)}.\n{content}"


def marked_json(form: str, document: dict[str, Any], field: str) -> str:
    """A JSON object, which knows no comments, as text: the marker stands at the beginning of a text of it.

    field: of the object's own, whose text may begin so.
    """

    def told(digest: str) -> str:
        told_in = f"Written by `onecat export {form}`; content sha256 {digest}. {document[field]}"
        return json.dumps({**document, field: told_in}, indent=2, ensure_ascii=False) + "\n"

    return told(_digest(told(_NO_DIGEST)))


def condition(text: str) -> Literal["ours", "edited", "foreign"]:
    """Whether a text was made by `marked` and nobody has changed it since."""
    if text.startswith("{"):
        return _condition_of_json(text)
    found = _MARKER.search(text[:_HEAD])
    if found is None:
        return "foreign"
    return "ours" if _digest(text[found.end() + 1 :]) == found[2] else "edited"


def _condition_of_json(text: str) -> Literal["ours", "edited", "foreign"]:
    found = _JSON_MARKER.search(text[:_HEAD])
    if found is None:
        return "foreign"
    bare = text[: found.start(1)] + _NO_DIGEST + text[found.end(1) :]
    return "ours" if _digest(bare) == found[1] else "edited"


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _lines(notes: Iterable[str]) -> Iterable[str]:
    """Notes as lines; what comes from onecat.yaml must not end a comment."""
    for note in (line for each in notes for line in each.split("\n")):
        yield "".join(letter if letter.isprintable() else "?" for letter in note)


def without_heading(text: str) -> str:
    """A text without the comment on its top: an export has one of its own."""
    lines = text.splitlines(keepends=True)
    while lines and (lines[0].startswith("# ") or not lines[0].strip()):
        lines.pop(0)
    return "".join(lines)
