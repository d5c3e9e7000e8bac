"""Starts of servers that are like many before them: a server that fails and starts again writes the same each time.

In: where words are in a block of a log. Out: the same without those in starts that tell nothing new.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onecat.observe import marks
from onecat.observe.finder import NO_WORD, Place
from onecat.observe.lines import LogLine, read_line
from onecat.observe.words import required_words

_MANY = 50
"""Places in a block from which on it pays to leave some out."""
_LAST_STARTS = 2
_OFTEN = 5
_HEAD_BYTES = 240
"""Of a line, by which it is known again."""
_LINE_BYTES = 4096
_MOST_HEADS = 4096
_MOST_KINDS = 20_000
_MOST_STRETCH_LINES = 50_000
"""Lines of all stretches that are kept to be known again."""
_MOST_WITH_NEW_LINES = 1000
"""Starts that are looked at only for a line that is new; for a server that writes something of its own in every one."""
_NUMBERS = b"0123456789"
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_HEXADECIMAL = bytes.maketrans(b"123456789abcdef", b"000000000000000")
# Where journalctl -o json names the source; see onecat.observe.lines.
_JOURNAL_SOURCES = (
    re.compile(rb'"CONTAINER_NAME"\s?:\s?"([^"\\]*)"'),
    re.compile(rb'"_HOSTNAME"\s?:\s?"([^"\\]*)"'),
)
_WORD = operator.itemgetter(0)
_NO_KIND = 0
_UNKNOWN = b"\n"
"""Instead of the name of a source, which has no end of line."""


class _Head(NamedTuple):
    """What the first bytes of a line say, whatever its digits are.

    source: its name where the digits do not matter. begin, end: its place in the line where they do. kind: the line
    without its numbers. starts: whether a server starts with it.
    """

    source: bytes | None
    begin: int
    end: int
    kind: int
    starts: bool


class _Stretch(NamedTuple):
    """The lines of a part of a block in which places are.

    firsts: the first place of each, counted from the first one of the part. kinds: of each line. runs: how many lines
    follow each other that are of one source, which, and whether a server starts with them; that is one line then.
    is_fixed: whether the sources are the same with other digits.
    """

    firsts: list[int]
    kinds: list[int]
    runs: list[tuple[int, bytes | None, bool]]
    is_fixed: bool


class _Lines(NamedTuple):
    """The lines of a block in which places are.

    firsts: the first place of each, and one more at the end. kinds: of each line. sources: for each source the lines
    before any start of its server, then those from each start on.
    """

    firsts: list[int]
    kinds: list[int]
    sources: dict[bytes | None, list[list[int]]]


class RepeatedStarts:
    """Knows which starts of servers were seen often.

    A start tells nothing when two of its source come after it in the same block, the words in it were seen together
    often, and so was each of its lines, apart from numbers.

    Parameters:
        means_nothing: whether a line tells nothing, so that it is no start either.
    """

    def __init__(self, means_nothing: Callable[[LogLine], bool]) -> None:
        self._means_nothing = means_nothing
        self._words = [word.encode() for word in required_words(marks.START)]
        self._heads: dict[bytes, _Head] = {}
        self._stretches: dict[tuple[int, int], _Stretch] = {}
        self._stretch_lines = 0
        self._stretch_words: Sequence[str] = ()
        self._seen: Counter[tuple[bytes | None, frozenset[str]]] = Counter()
        self._kinds: Counter[int] = Counter()
        self._well_known: set[int] = set()
        self._with_new_lines = 0

    def left_out(self, places: list[Place], words: Sequence[str], text: bytes) -> list[Place]:
        """The places without those that tell nothing.

        Parameters:
            places: in the text of a block, in order of lines.
            words: by the numbers that the places have.
        """
        if len(places) < _MANY:
            return places
        beginning = {index for index, word in enumerate(words) if word.encode() in self._words}
        begins = [index for index, place in enumerate(places) if place[0] in beginning]
        if len(begins) <= _LAST_STARTS:
            return places
        if words is not self._stretch_words:
            self._stretch_words = words
            self._forget_stretches()
        kept = bytearray(b"\1" * len(places))
        firsts, kinds, sources = self._lines(places, text, begins)
        for source, starts in sources.items():
            for start in starts[1:-_LAST_STARTS]:
                runs = [(start[0], start[-1] + 1)]
                if start[-1] - start[0] >= len(start):
                    runs = [(line, line + 1) for line in start]
                these = [kind for begin, end in runs for kind in kinds[begin:end]]
                held = [place for begin, end in runs for place in places[firsts[begin] : firsts[end]]]
                if self._tells_nothing(source, these, held, words):
                    for begin, end in runs:
                        kept[firsts[begin] : firsts[end]] = bytes(firsts[end] - firsts[begin])
        return list(itertools.compress(places, kept))

    def _lines(self, places: list[Place], text: bytes, begins: Sequence[int]) -> _Lines:
        """The lines of a block. begins: the places where a server may start, at which it is cut into parts."""
        firsts: list[int] = []
        kinds: list[int] = []
        sources: dict[bytes | None, list[list[int]]] = {}
        place = at = line_end = 0
        for index in [*begins, None]:
            next_place, next_at = len(places), len(text)
            if index is not None:
                position = places[index][1]
                if position < line_end:
                    continue
                next_at = text.rfind(b"\n", line_end, position) + 1 or line_end
                line_end = text.find(b"\n", position)
                line_end = len(text) if line_end < 0 else line_end
                next_place = index
                while next_place > place and places[next_place - 1][1] >= next_at:
                    next_place -= 1
            if next_place > place:
                found = self._stretch(places[place:next_place], text, at, next_at)
                number = len(firsts)
                firsts += [place + each for each in found.firsts]
                kinds += found.kinds
                for lines, source, starts in found.runs:
                    stretches = sources.get(source)
                    if stretches is None:
                        stretches = sources[source] = [[]]
                    # A server says it twice when it starts: the second time it is the same start.
                    if starts and (len(stretches) == 1 or len(stretches[-1]) > 1):
                        stretches.append([])
                    stretches[-1].extend(range(number, number + lines))
                    number += lines
            place, at = next_place, next_at
        firsts.append(len(places))
        return _Lines(firsts, kinds, sources)

    def _stretch(self, places: list[Place], text: bytes, begin: int, end: int) -> _Stretch:
        """The lines of text[begin:end], in which these places are; known again where only digits differ."""
        key = hash(text[begin:end].translate(None, _NUMBERS)), hash(tuple(map(_WORD, places)))
        known = self._stretches.get(key)
        if known is None:
            known = self._read_stretch(places, text, begin)
            if known.is_fixed:
                if self._stretch_lines >= _MOST_STRETCH_LINES:
                    self._forget_stretches()
                self._stretch_lines += len(known.firsts)
                self._stretches[key] = known
        return known

    def _forget_stretches(self) -> None:
        self._stretches.clear()
        self._stretch_lines = 0

    def _read_stretch(self, places: list[Place], text: bytes, end: int) -> _Stretch:
        firsts: list[int] = []
        kinds: list[int] = []
        heads: list[tuple[bytes | None, bool]] = []
        get, is_fixed = self._heads.get, True
        for index, (_, position, _) in enumerate(places):
            if position < end:
                continue
            begin = text.rfind(b"\n", end, position) + 1 or end
            end = text.find(b"\n", position)
            end = len(text) if end < 0 else end
            line = text[begin : min(end, begin + _HEAD_BYTES)]
            head = get(line.translate(_DIGITS)) or self._head_of(text, begin, end, line)
            source, name_begin, name_end, kind, starts = head
            if name_end:
                source = line[name_begin:name_end]
                is_fixed = False
            firsts.append(index)
            kinds.append(kind)
            heads.append((source, starts))
        runs: list[tuple[int, bytes | None, bool]] = []
        for (source, starts), same in itertools.groupby(heads):
            lines = sum(1 for _ in same)
            runs += [(1, source, True)] * lines if starts else [(lines, source, False)]
        return _Stretch(firsts, kinds, runs, is_fixed)

    def _head_of(self, text: bytes, begin: int, end: int, line: bytes) -> _Head:
        """What a line says that was not known by its first bytes."""
        if line.startswith(b'{"') and b'"MESSAGE"' in (entry := text[begin:end]):
            # The message of a journal entry is not in its first bytes, by which nothing can be known again.
            named = next(filter(None, (form.search(entry) for form in _JOURNAL_SOURCES)), None)
            starts = any(word in entry for word in self._words) and self._is_start(_read(entry))
            return _Head(None if named is None else named[1], 0, 0, _NO_KIND, starts)
        read = _read(text[begin : min(end, begin + _LINE_BYTES)])
        source = None if read.source is None else read.source.encode()
        kind, starts = hash(line.translate(_HEXADECIMAL)), self._is_start(read)
        head = _Head(source, 0, 0, kind, starts)
        if source is not None and any(each in _NUMBERS for each in source):
            place = line.find(source)
            # Where it cannot be said which part of the line names the source, nothing is left out.
            head = _Head(_UNKNOWN, 0, 0, kind, False)
            if line.count(source) == 1:
                head = _Head(None, place, place + len(source), kind, starts)
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads[line.translate(_DIGITS)] = head
        return head

    def _is_start(self, line: LogLine) -> bool:
        return marks.START.search(line.text) is not None and not self._means_nothing(line)

    def _tells_nothing(
        self, source: bytes | None, kinds: Sequence[int], places: Sequence[Place], words: Sequence[str]
    ) -> bool:
        """Whether a start with lines of these kinds and these places in them tells nothing; it is counted otherwise."""
        known = hash((source, len(places), *kinds))
        if known in self._well_known:
            return True
        if max(len(self._seen), len(self._kinds), len(self._well_known)) >= _MOST_KINDS:
            self._seen.clear()
            self._kinds.clear()
            self._well_known.clear()
        together = source, frozenset("" if word == NO_WORD else words[word] for word, _, _ in places)
        distinct = set(kinds)
        if self._seen[together] >= _OFTEN:
            is_known = all(self._kinds[kind] >= _OFTEN for kind in distinct)
            if is_known or self._with_new_lines >= _MOST_WITH_NEW_LINES:
                # Lines without a kind are known by their words alone.
                if _NO_KIND not in distinct:
                    self._well_known.add(known)
                return True
            self._with_new_lines += 1
        self._seen[together] += 1
        self._kinds.update(distinct)
        return False


def _read(line: bytes) -> LogLine:
    return read_line(line.decode("utf-8", "replace"))
