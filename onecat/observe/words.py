"""Words of which at least one stands in whatever a pattern matches: what a long log is searched for first.

Words are few and simple, so that searching for hundreds of them at once takes as long as for one; a pattern is tried
only on a line that holds one of its words.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from onecat.observe.patterns import Pattern

_SHORTEST_WORD = 3
_PARSER: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


class Word(NamedTuple):
    """A text that is looked for. ignore_case: in capitals as well."""

    text: str
    ignore_case: bool = False


def required_words(pattern: Pattern) -> frozenset[Word]:
    """Words of which at least one is in every text that a pattern matches; none when there are no such words.

    Ignores words of less than three characters, which would let too much through. Raises ValueError for a pattern that
    only RE2 understands and Python's re does not.
    """
    try:
        parsed = _PARSER.parse(pattern.pattern)
    except re.error as error:
        raise ValueError(f"{error} (Python's syntax)") from error
    return _words(parsed, bool(parsed.state.flags & re.IGNORECASE)) or frozenset()


def _kept_by_json(character: int) -> bool:
    """Whether a character stands for itself where a line is kept as JSON: Docker also escapes < > &."""
    return 32 <= character < 127 and chr(character) not in '"\\<>&'


def _words(parsed: Iterable[tuple[Any, Any]], ignore_case: bool) -> frozenset[Word] | None:
    """Of all parts that must occur, the one with the longest words."""
    choices: list[frozenset[Word]] = []
    run = ""
    for operation, argument in itertools.chain(parsed, [(None, None)]):
        name = str(operation)
        if name == "LITERAL" and _kept_by_json(argument):
            run += chr(argument)
            continue
        if name == "AT":
            continue
        if len(run) >= _SHORTEST_WORD:
            choices.append(frozenset([Word(run.lower() if ignore_case else run, ignore_case)]))
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
    return max(choices, key=lambda words: (min(len(word.text) for word in words), -len(words)), default=None)
