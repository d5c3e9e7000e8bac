"""Values of flags: whether an engine accepts them, and the words they become on its command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from onecat.engines.records import Flag

FlagValue = bool | int | float | str

_MULTIPLIERS = {"": 1} | {
    letter: base**power
    for power, letters in enumerate(("kK", "mM", "gG", "tT"), start=1)
    for letter, base in zip(letters, (1000, 1024), strict=True)
}
EXPECTED = {
    "boolean": "true or false",
    "switch": "true, or no line at all",
    "text": "text",
    "integer": "a whole number",
    "number": "a number",
    "size": "a whole number, or one with a unit as 25.6k (1000) or 32K (1024)",
    "size-or-auto": "a whole number, one with a unit as 25.6k (1000) or 32K (1024), or auto",
    "json": "JSON as text in single quotes",
    "json-or-text": "text, or JSON as text in single quotes",
    "unchecked": "a value",
}


def parse_size(value: int | str) -> int | None:
    """A size as the engine reads it: 4096, "4096", "32K" (1024), "25.6k" (1000). None when it is none.

    Source: vllm/utils/argparse_utils.py (human_readable_int).
    """
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"(\d+)(\.\d+)?([kKmMgGtT]?)", value.strip())
    if not found or (found[2] and not found[3].islower()):
        return None
    return int(float(found[1] + (found[2] or "")) * _MULTIPLIERS[found[3]])


def wrong_value(flag: Flag, value: FlagValue) -> str | None:
    """Why the engine would not accept `value` for `flag`, as what was expected; None when it would."""
    expected = EXPECTED[flag.kind]
    if flag.choices and isinstance(value, str) and flag.kind == "text":
        words = value.split() if flag.many else [value]
        # Some of the engine's flags take `-` for `_`.
        if all(word in flag.choices or word.replace("-", "_") in flag.choices for word in words):
            return None
        return f"one of: {', '.join(flag.choices)}"
    return None if _fits(flag, value) else expected


def _fits(flag: Flag, value: FlagValue) -> bool:
    kind = flag.kind
    if kind in ("boolean", "switch"):
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "unchecked":
        return True
    if flag.many and isinstance(value, str) and kind == "integer":
        return all(re.fullmatch(r"-?\d+", word) for word in value.split())
    if kind == "integer":
        return isinstance(value, int)
    if kind == "number":
        return isinstance(value, (int, float))
    if kind in ("size", "size-or-auto"):
        if kind == "size-or-auto" and (value == -1 or str(value).lower() == "auto"):
            return True
        return not isinstance(value, float) and parse_size(value) is not None
    if kind == "json":
        return not isinstance(value, str) or _is_json(value)
    if kind == "json-or-text":
        return isinstance(value, str) and (not value.lstrip().startswith("{") or _is_json(value))
    return isinstance(value, str)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def typed(flag: Flag, text: str) -> FlagValue:
    """A value typed by a person on the command line, as the type of `flag`; the text itself when it is of none."""
    if flag.kind in ("boolean", "switch") and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if flag.kind in ("integer", "size", "size-or-auto") and re.fullmatch(r"-?\d+", text):
        return int(text)
    if flag.kind == "number" and re.fullmatch(r"-?\d+(\.\d*)?([eE][-+]?\d+)?", text):
        return float(text) if not text.lstrip("-").isdigit() else int(text)
    return text


def words(flag: Flag, value: FlagValue) -> Sequence[str]:
    """The words of the command line that give `value` to `flag`.

    A false switch gives none; several values of one flag are separated by blanks.
    """
    name = f"--{flag.name}"
    if isinstance(value, bool):
        if value:
            return [name]
        return [f"--{flag.negation}"] if flag.negation else []
    text = str(value)
    parts = text.split() if flag.many or flag.repeated else [text]
    if flag.repeated:
        return [word for part in parts for word in (name, part)]
    # A value that begins with a dash would be read as a flag.
    return [f"{name}={text}"] if text.startswith("-") else [name, *parts]
