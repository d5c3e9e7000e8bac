"""What a long log is searched for before any pattern is tried: words that stand in whatever a pattern matches.

A word stands for itself also where a line is kept as JSON, so it has no character that JSON writes in another way.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re
import sys
from collections.abc import Iterable
from typing import Any

from onecat.observe.patterns import Pattern

_SHORTEST_WORD = 3
_MOST_SPELLINGS = 16
_PARSER: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


@functools.cache
def parse(pattern: Pattern) -> Any:
    """A pattern as a tree of operations, in the form of Python's own parser.

    Raises ValueError for a pattern that only RE2 understands and Python's re does not.
    """
    try:
        return _PARSER.parse(pattern.pattern)
    except re.error as error:
        raise ValueError(f"{error} (Python's syntax)") from error


@functools.cache
def required_words(pattern: Pattern) -> frozenset[str]:
    """Words of which at least one is in every text that a pattern matches; none when there are no such words.

    Ignores words of less than three characters, which would let too much through. Raises ValueError for a pattern that
    only RE2 understands and Python's re does not.
    """
    parsed = parse(pattern)
    return _words(parsed, bool(parsed.state.flags & re.IGNORECASE)) or frozenset()


def _kept_by_json(character: int) -> bool:
    """Whether a character stands for itself where a line is kept as JSON: Docker also escapes < > &."""
    return 32 <= character < 127 and chr(character) not in '"\\<>&'


def _rarity(word: str) -> float:
    """How seldom a word is: letters are more common than capitals, and those than digits and signs."""
    return sum(2.0 if each.isdigit() else 1.0 if each.islower() else 0.5 if each == " " else 1.5 for each in word)


def _words(parsed: Iterable[tuple[Any, Any]], ignore_case: bool) -> frozenset[str] | None:
    """Of all parts that must occur, the one with the rarest words."""
    choices: list[frozenset[str]] = []
    run = ""
    for operation, argument in itertools.chain(parsed, [(None, None)]):
        name = str(operation)
        if name == "LITERAL" and _kept_by_json(argument):
            run += chr(argument)
            continue
        if name == "AT":
            continue
        choices += _spelt(run, ignore_case)
        run = ""
        inner = None
        if name == "SUBPATTERN":
            added, removed = argument[1], argument[2]
            inner = _words(argument[-1], (ignore_case or bool(added & re.I)) and not removed & re.I)
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] > 0:
            inner = _words(argument[2], ignore_case)
        elif name == "BRANCH":
            branches = [_words(branch, ignore_case) for branch in argument[1]]
            if all(branches):
                inner = frozenset(word for branch in branches for word in branch or ())
        if inner:
            choices.append(inner)
    return max(choices, key=lambda words: (min(map(_rarity, words)), -len(words), sorted(words)), default=None)


def _spelt(run: str, ignore_case: bool) -> list[frozenset[str]]:
    """A run of characters as a word; where capitals do not matter, parts of it in all their spellings."""
    if not ignore_case:
        return [frozenset([run])] if len(run) >= _SHORTEST_WORD else []
    found = []
    for begin in range(len(run)):
        spellings, end = [""], begin
        while end < len(run):
            both = {run[end].lower(), run[end].upper()}
            if len(spellings) * len(both) > _MOST_SPELLINGS:
                break
            spellings = [each + letter for each in spellings for letter in sorted(both)]
            end += 1
        if end - begin >= _SHORTEST_WORD:
            found.append(frozenset(spellings))
    return found
