"""Columns of a terminal: how wide text is there, and text broken into lines.

Chinese, Japanese and Korean characters take two columns and may be broken between any two of them; other words are kept
whole, because a person copies commands and addresses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

STEERING = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories of characters that steer a terminal, or the order in which it shows text, instead of being shown.

Source: https://www.unicode.org/reports/tr36/ (bidirectional text spoofing)
"""

NARROWEST = 20
"""Columns that text is always given, however narrow the terminal says it is."""


def harmless(text: str, mark: str = "?") -> str:
    """Text that cannot steer a terminal: a mark stands for each character that would."""
    return "".join(mark if unicodedata.category(each) in STEERING else each for each in text)


def width(text: str) -> int:
    """Columns that a text takes.

    Source: https://www.unicode.org/reports/tr11/ (wide and fullwidth take two; combining and format characters none).
    """
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def pad(text: str, columns: int) -> str:
    """Text with spaces behind it up to a width; text that is wider stays as it is."""
    return text + " " * (columns - width(text))


def clip(text: str, columns: int) -> str:
    """Text of at most a width, an ellipsis in its end where something was left out."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for character in text:
        used += _width(character)
        if used > columns - 1:
            break
        kept += character
    return kept + "…"


def wrap(text: str, columns: int, first: str = "", following: str = "") -> list[str]:
    """Text in lines of at most `columns` where its words allow; there is always one line.

    `first` stands before the first line, `following` before the others. All white space of the text counts as one
    space.
    """
    columns = max(columns, NARROWEST)
    lines, line, is_empty = [], first, True
    for space, piece in _pieces(text):
        gap = "" if is_empty else space
        if not is_empty and width(line) + len(gap) + width(piece) > columns:
            lines.append(line)
            line, gap = following, ""
        line += gap + piece
        is_empty = False
    return [*lines, line if not is_empty else first]


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """What may begin a line, each with the space that stands before it otherwise."""
    for word in text.split():
        space = " "
        for piece in re.findall(_BREAKABLE, word):
            yield space, piece
            space = ""


# A wide character with the punctuation that may not begin a line, or a run of anything else.
_WIDE = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
_CLOSING = "\u3001\u3002\uff01\uff09\uff0c\uff1a\uff1b\uff1f\u300b\u300d\u300f\u3011"
_BREAKABLE = re.compile(f"[{_WIDE}][{_CLOSING}]*|[^{_WIDE}]+")
