"""Finds the lines of a long log that are worth a look, at the speed of one search for all words at once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import re2

from onecat.observe.blocks import Block, blocks_of_lines
from onecat.observe.lines import plain
from onecat.observe.patterns import Pattern
from onecat.observe.words import Word, required_words


@functools.lru_cache(maxsize=64)
def _alternatives(words: frozenset[Word]) -> Any:
    return re2.compile(b"|".join(_expression(word) for word in sorted(words)), _options())


def _expression(word: Word) -> bytes:
    text = bytes(re2.escape(word.text.encode()))
    return b"(?i:" + text + b")" if word.ignore_case else text


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    # Bytes as they are: a log may hold any.
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    return options


class Words:
    """The words of patterns, ready to be searched for.

    Parameters:
        patterns: pairs of a name, which may repeat, and a pattern. Raises ValueError for one without words.
    """

    def __init__(self, patterns: Iterable[tuple[str, Pattern]]) -> None:
        self.names_of: dict[Word, set[str]] = {}
        for name, pattern in patterns:
            words = required_words(pattern)
            if not words:
                raise ValueError(f"{name}: pattern {pattern.pattern!r} has no word of three letters that must occur")
            for word in words:
                self.names_of.setdefault(word, set()).add(name)
        self._words = list(self.names_of)
        self._set = re2.Set.SearchSet(_options())
        for word in self._words:
            self._set.Add(_expression(word))
        self._set.Compile()

    def names(self, line: bytes) -> set[str]:
        """The names that a line holds a word of."""
        found: set[str] = set()
        for index in self._set.Match(line) or ():
            found |= self.names_of[self._words[index]]
        return found


class Finder:
    """Tells which lines of a block hold a word of a pattern, and of which patterns."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._left_out: set[str] = set()
        self._search = _alternatives(frozenset(words.names_of))

    def leave_out(self, name: str) -> None:
        """Look for this name no more."""
        self._left_out.add(name)
        words = frozenset(word for word, names in self._words.names_of.items() if not names <= self._left_out)
        self._search = _alternatives(words) if words else None

    def look_for_all(self) -> None:
        """Look for every name again."""
        if self._left_out:
            self._left_out.clear()
            self._search = _alternatives(frozenset(self._words.names_of))

    def names(self, line: bytes) -> set[str]:
        """The names that a line holds a word of, less those left out."""
        return self._words.names(line) - self._left_out

    def lines(self, block: Block) -> Iterator[tuple[int, int, int]]:
        """The lines of a block that hold a word, in order: number, begin and end in the block's text.

        What is left out meanwhile counts from the next line on.
        """
        text, position, counted, number = block.text, 0, 0, block.first_line
        while position < len(text) and self._search is not None:
            match = self._search.search(text, position)
            if match is None:
                return
            found = match.start()
            begin = text.rfind(b"\n", position, found) + 1 or position
            end = text.find(b"\n", found)
            end = len(text) if end < 0 else end
            number += text.count(b"\n", counted, begin)
            counted = begin
            yield number, begin, end
            position = end + 1


def candidate_lines(lines: Iterable[str], words: Words) -> Iterator[tuple[int, str, set[str]]]:
    """The lines of a log that may match, in order, as they are read: number, plain line, names of patterns to try."""
    finder = Finder(words)
    for block in blocks_of_lines(lines):
        for number, begin, end in finder.lines(block):
            line = block.text[begin:end]
            yield number, plain(line.decode("utf-8", "replace")), finder.names(line)
