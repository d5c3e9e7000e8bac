"""Which lines of a long log are worth a look.

Every pattern is reduced to words of which one stands in whatever it matches. They are looked for in blocks of lines,
at the speed of `str.find`; a pattern is tried only on a line that holds one of its words.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from onecat.observe.patterns import Pattern

_LINES_PER_BLOCK = 2000
_SHORTEST_WORD = 3
_ESCAPED = '"\\'
"""Written in another way where a line is kept as JSON, and so no part of a word."""
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def required_words(pattern: Pattern) -> frozenset[str] | None:
    """Words of which at least one is in every text that a pattern matches; None when there are no such words.

    Ignores words of less than three characters, which would let too much through.
    """
    parsed = _parser.parse(pattern.pattern)
    if parsed.state.flags & re.IGNORECASE:
        return None
    return _words(parsed)


def _words(parsed: Iterable[tuple[Any, Any]]) -> frozenset[str] | None:
    """Of all parts that must occur, the one with the longest words."""
    choices: list[frozenset[str]] = []
    run = ""
    for operation, argument in itertools.chain(parsed, [(None, None)]):
        name = str(operation)
        if name == "LITERAL" and chr(argument) not in _ESCAPED:
            run += chr(argument)
            continue
        if name == "AT":
            continue
        if len(run) >= _SHORTEST_WORD:
            choices.append(frozenset([run]))
        run = ""
        inner = None
        if name == "SUBPATTERN":
            inner = _words(argument[-1])
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] > 0:
            inner = _words(argument[2])
        elif name == "BRANCH":
            branches = [_words(branch) for branch in argument[1]]
            if all(branch is not None for branch in branches):
                inner = frozenset(word for branch in branches if branch is not None for word in branch)
        if inner is not None:
            choices.append(inner)
    return max(choices, key=lambda words: (min(map(len, words)), -len(words)), default=None)


def candidates(
    lines: Iterable[str],
    patterns: Iterable[tuple[str, Pattern]],
    clean: Callable[[str], str],
    finished: set[str],
) -> Iterator[tuple[int, str, set[str]]]:
    """The lines that may match, in order.

    Parameters:
        lines: the log; read in blocks, so that memory does not grow with it.
        patterns: pairs of a name, which may repeat, and a pattern.
        clean: makes a line what patterns are written for; it may take away, and must not add.
        finished: names that are not looked for any more; the caller adds to it on the way.

    Yields (number counted from 1, clean line, names of the patterns to try).
    """
    names_of: dict[str, set[str]] = {}
    everywhere: set[str] = set()
    for name, pattern in patterns:
        words = required_words(pattern)
        if words is None:
            everywhere.add(name)
        for word in words or ():
            names_of.setdefault(word, set()).add(name)
    iterator = iter(lines)
    before = 0
    while block := list(itertools.islice(iterator, _LINES_PER_BLOCK)):
        text = "\n".join(block)
        if "\x1b" in text or "\\u001b" in text:
            block = [clean(line) if "\x1b" in line or "\\u001b" in line else line for line in block]
            text = "\n".join(block)
        starts = list(itertools.accumulate((len(line) + 1 for line in block), initial=0))
        found: dict[int, set[str]] = {index: set(everywhere) for index in range(len(block))} if everywhere else {}
        for word, names in names_of.items():
            if names <= finished:
                continue
            position = text.find(word)
            while position >= 0:
                index = bisect_right(starts, position) - 1
                found.setdefault(index, set()).update(names)
                position = text.find(word, starts[index + 1])
        for index in sorted(found):
            yield before + index + 1, clean(block[index]), found[index]
        before += len(block)
