"""Patterns for lines as they stand in a log: before colours, prefixes and JSON are taken away.

A raw form matches at least wherever the pattern itself would match the message: it may match more, never less.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import re2

from onecat.observe.patterns import Pattern

# In order: an escaped character, a class of characters, how a group begins, and what is written in another way.
_TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P?<\w+>|\(\?[\w-]*:|\(\?[\w-]+\)|[\^$\"<>&]|.", re.DOTALL)
_WRITTEN = {
    "^": "",
    "$": "",
    r"\A": "",
    r"\z": "",
    '"': r'(?:\\?")',
    r"\"": r'(?:\\?")',
    "<": r"(?:<|\\u003c)",
    ">": r"(?:>|\\u003e)",
    "&": r"(?:&|\\u0026)",
    r"\\": r"(?:\\{1,2})",
    r"\s": r"(?:\s|\\[tnrf])",
    r"\t": r"(?:\t|\\t)",
}
_MOST_MEMORY = 16 << 20


def raw_form(pattern: Pattern) -> str:
    """The text of a pattern's raw form; it has no groups with names."""
    return "".join(_written(token) for token in _TOKENS.findall(pattern.pattern))


def _written(token: str) -> str:
    if token.startswith(("(?P<", "(?<")):
        return "(?:"
    # Within a class, a backslash or a blank of the message may stand as an escape.
    return _WRITTEN.get(token, token)


@functools.lru_cache(maxsize=4096)
def raw_pattern(*patterns: Pattern) -> Any:
    """A compiled pattern for bytes that matches what any of the raw forms does, never beyond the end of a line."""
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    options.never_nl = True
    options.max_mem = _MOST_MEMORY
    return re2.compile("|".join(f"(?:{raw_form(pattern)})" for pattern in patterns).encode(), options)
