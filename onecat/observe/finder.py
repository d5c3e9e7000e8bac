"""Finds the lines of a long log that are worth a look, by one search for all words of all patterns at once."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

import ahocorasick_rs

from onecat.observe.blocks import blocks_of_lines
from onecat.observe.lines import plain
from onecat.observe.patterns import Pattern
from onecat.observe.raw_forms import raw_pattern
from onecat.observe.words import required_words

_LOOK_BYTES = 4096
"""A look at a line for the rest of a pattern counts once for each so many bytes."""
_FRUITLESS = 300
"""Looks at lines that hold a word and not what it stands for, after which it may be given up."""
_WASTED = 10_000
"""Fruitless looks, or hits of words that are not looked for any more, within _WINDOW_BYTES, after which another search
is made ready. Each takes a microsecond or two, and that about as long as all of these."""
_WINDOW_BYTES = 16 << 20
_PATTERNS_AT_ONCE = 40
_LONG_LOG_BYTES = 8 << 20
"""Bytes from which on the faster kind of search pays, which takes 20 ms to make ready."""
NO_WORD = -1
"""Stands for a pattern whose words are given up."""

Place = tuple[int, int, int]
"""The index of a word, or NO_WORD, and where it begins and ends."""


BEGIN = operator.itemgetter(1)
"""Of a place, where it begins."""


class Candidate(NamedTuple):
    """A line that holds words of patterns. begin, end: its place in the block's text."""

    begin: int
    end: int
    words: Set[str]


class Words:
    """The words of patterns, ready to be searched for.

    Parameters:
        patterns: pairs of a name, which may repeat, and a pattern. Raises ValueError for one without words.
    """

    def __init__(self, patterns: Iterable[tuple[str, Pattern]]) -> None:
        self.meant: dict[str, list[tuple[str, Pattern]]] = {}
        self._of: dict[str, set[str]] = {}
        for name, pattern in patterns:
            words = required_words(pattern)
            if not words:
                raise ValueError(f"{name}: pattern {pattern.pattern!r} has no word of three letters that must occur")
            for word in words:
                self.meant.setdefault(word, []).append((name, pattern))
                self._of.setdefault(name, set()).add(word)
        self._names = {word: frozenset(name for name, _ in meant) for word, meant in self.meant.items()}
        self.search = Search(list(self.meant))

    def only_of(self, names: Set[str]) -> set[str]:
        """The words that stand for nothing but these names."""
        return {word for name in names for word in self._of.get(name, ()) if self._names[word] <= names}


class Search:
    """Searches a text for words, by the algorithm of Aho and Corasick, and for patterns instead of other words.

    It may be used by several threads at once, and lets go of Python's lock while it searches.

    Parameters:
        is_long: whether many megabytes are to be searched.
    """

    def __init__(self, words: list[str], patterns: Iterable[Pattern] = (), is_long: bool = False) -> None:
        kinds = ahocorasick_rs.Implementation
        self.words = words
        self._automaton = ahocorasick_rs.BytesAhoCorasick(
            [word.encode() for word in words], implementation=kinds.DFA if is_long else kinds.ContiguousNFA
        )
        distinct = list(dict.fromkeys(patterns))
        groups = range(0, len(distinct), _PATTERNS_AT_ONCE)
        self._exact = [raw_pattern(*distinct[begin : begin + _PATTERNS_AT_ONCE]) for begin in groups]

    def places(self, text: bytes) -> list[Place]:
        """Where words are, and patterns; in order of lines."""
        places: list[Place] = self._automaton.find_matches_as_indexes(text, overlapping=True)
        if self._exact:
            for pattern in self._exact:
                places += [(NO_WORD, *match.span()) for match in pattern.finditer(text)]
            places.sort(key=BEGIN)
        return places


class Finder:
    """Tells which lines of a log's blocks may match, and which patterns.

    Most logs hold a few of the words all the time. A word that is found again and again, and never with the rest of a
    pattern, is given up, and the log is searched for its patterns as they are.
    """

    def __init__(self, words: Words) -> None:
        self._words = words
        self._search = self._whole = words.search
        self._is_long = False
        self._read = self._window = 0
        self._superfluous = self._fruitless_looks = 0
        self._left_out: set[str] = set()
        self._left_out_of_search: set[str] = set()
        self._paused: set[str] = set()
        self._idle: set[str] = set()
        self._fruitless: Counter[str] = Counter()
        self._given_up: set[str] = set()

    def leave_out(self, name: str) -> None:
        """Look for this name no more."""
        self._left_out.add(name)
        self._idle = self._words.only_of(self._left_out | self._paused)

    def look_for_all(self) -> bool:
        """Look for every name again that is not paused; whether any was left out."""
        was_left_out = bool(self._left_out)
        if was_left_out:
            self._left_out.clear()
            self._idle = self._words.only_of(self._paused)
            self._search = self._whole
            self._left_out_of_search = set()
        return was_left_out

    @property
    def is_paused(self) -> bool:
        """Whether some names are paused."""
        return bool(self._paused)

    def pause(self, names: Iterable[str]) -> None:
        """Do not look for these names for now, and for all others that were paused before."""
        paused = set(names)
        if paused != self._paused:
            self._paused = paused
            self._idle = self._words.only_of(self._left_out | paused)

    @property
    def search(self) -> Search:
        """The search that is made for the next block; `learn` and `look_for_all` change it."""
        return self._search

    @property
    def words(self) -> Sequence[str]:
        """The words that are searched for now."""
        return self._search.words

    def candidates(self, text: bytes, places: Sequence[Place], end: int = 0) -> list[Candidate]:
        """The lines of a block's text in which these places are, in order.

        Parameters:
            places: what `search` finds in the text, or some of it.
            end: of the line before the first.
        """
        words = self._search.words
        idle = {index for index, word in enumerate(words) if word in self._idle}
        wanted = [place for place in places if place[0] not in idle] if idle else places
        self._superfluous += len(places) - len(wanted)
        found: list[Candidate] = []
        held: set[str] = set()
        line_end = -1
        for word, position, _ in wanted:
            if position >= line_end:
                begin = text.rfind(b"\n", end, position) + 1 or end
                end = text.find(b"\n", position)
                end = line_end = len(text) if end < 0 else end
                held = set()
                found.append(Candidate(begin, end, held))
            if word == NO_WORD:
                every = self._words.search
                held.update(every.words[each] for each, _, _ in every.places(text[begin:end]))
            else:
                held.add(words[word])
        return found

    def names(self, candidate: Candidate, text: bytes) -> set[str]:
        """The names of patterns that a line may match."""
        names: set[str] = set()
        if candidate.words <= self._idle:
            self._superfluous += 1
            return names
        line = None
        for word in candidate.words:
            for name, pattern in self._words.meant[word]:
                if name in self._left_out or name in names or name in self._paused:
                    continue
                line = text[candidate.begin : candidate.end] if line is None else line
                if raw_pattern(pattern).search(line) is not None:
                    names.add(name)
                elif word not in self._given_up:
                    looks = 1 + len(line) // _LOOK_BYTES
                    self._fruitless[word] += looks
                    self._fruitless_looks += looks
        return names

    def learn(self, size: int) -> None:
        """After a block of so many bytes: give words up, and leave out of the search what nobody looks for."""
        self._read += size
        self._window += size
        is_longer = not self._is_long and self._read >= _LONG_LOG_BYTES
        if is_longer or self._fruitless_looks >= _WASTED:
            self._is_long |= is_longer
            self._fruitless_looks = 0
            self._given_up |= {word for word, looks in self._fruitless.items() if looks >= _FRUITLESS}
            self._search = self._whole = self._made(set())
            self._left_out_of_search = set()
        if self._superfluous >= _WASTED and self._left_out != self._left_out_of_search:
            self._left_out_of_search = set(self._left_out)
            self._search = self._made(self._left_out)
        if self._window >= _WINDOW_BYTES:
            self._window = self._superfluous = self._fruitless_looks = 0
            self._fruitless.clear()

    def _made(self, left_out: set[str]) -> Search:
        """The search for everything but these names."""
        left = {
            word: [pattern for name, pattern in meant if name not in left_out]
            for word, meant in self._words.meant.items()
        }
        words = [word for word, patterns in left.items() if patterns and word not in self._given_up]
        given_up = (pattern for word in sorted(self._given_up) for pattern in left[word])
        return Search(words, given_up, self._is_long)


def candidate_lines(lines: Iterable[str], words: Words) -> Iterator[tuple[int, str, set[str]]]:
    """The lines of a log that may match, in order, as they are read: number, plain line, names of patterns to try."""
    finder = Finder(words)
    for block in blocks_of_lines(lines):
        text, number, counted = block.text, block.first_line, 0
        for candidate in finder.candidates(text, finder.search.places(text)):
            names = finder.names(candidate, text)
            if names:
                number += text.count(b"\n", counted, candidate.begin)
                counted = candidate.begin
                yield number, plain(text[candidate.begin : candidate.end].decode("utf-8", "replace")), names
        finder.learn(len(text))
