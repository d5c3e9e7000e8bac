"""Patterns for lines as they stand in a log: before colours, prefixes and JSON are taken away.

A raw form matches at least wherever the pattern itself would match the message: it may match more, never less. In JSON
a character may stand as an escape of several bytes, and one beyond ASCII always is several.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import re2

from onecat.observe.patterns import Pattern
from onecat.observe.words import parse

_MOST_MEMORY = 16 << 20
_ESCAPE = r"\\(?:u[0-9A-Fa-f]{4}|.)"
_BEYOND_ASCII = r"\x80-\xff"
_ASCII = range(128)
_OTHERWISE = frozenset(chr(code) for code in (*range(32), 127)) | frozenset('"\\<>&')
"""ASCII characters that JSON writes in another way, or Docker does."""
_IN_ESCAPES = frozenset('\\"/0123456789abcdefABCDEFunrt')
_CATEGORIES = {
    "DIGIT": frozenset("0123456789"),
    "SPACE": frozenset(" \t\n\r\f\v"),
    "WORD": frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"),
}


def raw_form(pattern: Pattern) -> str:
    """The text of a pattern's raw form, for bytes; it has no groups. Raises ValueError as `required_words`."""
    parsed = parse(pattern)
    flags = "(?i)" if parsed.state.flags & re.IGNORECASE else ""
    return flags + _sequence(parsed)


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


def _sequence(parsed: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_written(str(operation), argument) for operation, argument in parsed)


def _written(operation: str, argument: Any) -> str:
    if operation == "LITERAL":
        return _literal(chr(argument))
    if operation == "AT":
        # Where a word or a line begins cannot be told in JSON.
        return ""
    if operation == "BRANCH":
        return f"(?:{'|'.join(map(_sequence, argument[1]))})"
    if operation == "SUBPATTERN":
        _, added, removed, inner = argument
        flags = ("i" if added & re.IGNORECASE else "") + ("-i" if removed & re.IGNORECASE else "")
        return f"(?{flags}:{_sequence(inner)})"
    if operation in ("MAX_REPEAT", "MIN_REPEAT"):
        return _repeated(*argument)
    characters, beyond = _characters(operation, argument)
    return _one_of(characters, beyond)


def _literal(character: str) -> str:
    if character in _OTHERWISE:
        return f"(?:{re.escape(character)}|{_escapes(character)})"
    return re.escape(character) if character.isascii() else f"(?:{_bytes(character)})"


def _escapes(character: str) -> str:
    """How JSON may write a character."""
    number = rf"\\u{ord(character):04x}"
    return rf"\\{re.escape(character)}|{number}" if character in '"\\' else rf"\\[bfnrt]|{number}"


def _bytes(character: str) -> str:
    return "".join(rf"\x{byte:02x}" for byte in character.encode("utf-8", "replace"))


def _repeated(least: int, most: Any, inner: Sequence[tuple[Any, Any]]) -> str:
    """Of what may have several bytes there are any number: to count them would cost more than it tells."""
    kinds = {str(operation) for operation, _ in inner}
    if len(inner) == 1 and kinds <= {"ANY", "IN", "NOT_LITERAL"}:
        characters, beyond = _characters(str(inner[0][0]), inner[0][1])
        if beyond or characters & _OTHERWISE:
            if (least, most) == (0, 1):
                return f"(?:{_one_of(characters, beyond)})?"
            return _any_of(characters, beyond) + ("+" if least else "*")
        return _class(characters) + _count(least, most)
    return f"(?:{_sequence(inner)})" + _count(least, most)


def _count(least: int, most: Any) -> str:
    if str(most) == "MAXREPEAT":
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"


def _any_of(characters: frozenset[str], beyond: bool) -> str:
    kind = _class(characters, beyond)
    return kind if characters >= _IN_ESCAPES else f"(?:{kind}|{_ESCAPE})"


def _one_of(characters: frozenset[str], beyond: bool) -> str:
    kinds = [_class(characters)] if characters else []
    kinds += [_ESCAPE] if characters & _OTHERWISE else []
    kinds += [f"[{_BEYOND_ASCII}]+"] if beyond else []
    return kinds[0] if len(kinds) == 1 else f"(?:{'|'.join(kinds)})"


def _class(characters: frozenset[str], beyond: bool = False) -> str:
    """A class of these characters, in ranges."""
    codes = sorted(map(ord, characters))
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\x{low:02x}-\x{high:02x}" for low, high in ranges) + (_BEYOND_ASCII if beyond else "") + "]"


def _characters(operation: str, argument: Any) -> tuple[frozenset[str], bool]:
    """The ASCII characters that an operation on one character accepts, and whether it accepts others."""
    everything = frozenset(map(chr, _ASCII))
    if operation == "ANY":
        return everything, True
    if operation == "NOT_LITERAL":
        return everything - {chr(argument)}, True
    if operation != "IN":
        raise ValueError(f"{operation} of Python's syntax has no raw form")
    accepted: set[str] = set()
    beyond = is_negated = False
    for name, value in argument:
        if str(name) == "NEGATE":
            is_negated = True
        elif str(name) == "LITERAL":
            accepted.add(chr(value))
            beyond |= value >= len(_ASCII)
        elif str(name) == "RANGE":
            accepted.update(chr(code) for code in range(value[0], min(value[1] + 1, len(_ASCII))))
            beyond |= value[1] >= len(_ASCII)
        else:
            kind = str(value).removeprefix("CATEGORY_")
            is_other = kind.startswith("NOT_")
            known = _CATEGORIES[kind.removeprefix("NOT_")]
            accepted |= everything - known if is_other else known
            beyond |= is_other
    if is_negated:
        return everything - accepted, True
    return frozenset(each for each in accepted if each.isascii()), beyond
