"""From a log to causes: one pass over its lines, pure over the table of signatures.

A run is one start of the server. What made an earlier start fail is told as `earlier` when a later start came to serve
or failed in another way; it stays the cause when the later start has not come so far yet.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import get_args

from onecat.observe import marks
from onecat.observe.ahead import done_ahead, threads_to_use
from onecat.observe.blocks import Block, block_of_lines, blocks_of_bytes, blocks_of_lines
from onecat.observe.finder import BEGIN, Candidate, Finder, Place, Search, Words
from onecat.observe.lines import LogLine, plain, read_line
from onecat.observe.patterns import Match, Pattern, compile_pattern
from onecat.observe.raw_forms import raw_pattern
from onecat.observe.records import Diagnosis, Evidence, Signature, SignatureTable, Standing
from onecat.observe.runs import MOST_EVIDENCE, Found, Partial, Run, Source, Sources
from onecat.observe.signatures import load_signatures
from onecat.observe.starts import RepeatedStarts
from onecat.observe.surroundings import Passage as Surrounding
from onecat.observe.surroundings import Surroundings
from onecat.observe.telling import evidence_of, explained, ranked, tell, values_of
from onecat.observe.tracebacks import Chain, chains
from onecat.observe.words import required_words

__all__ = ["Diagnoser", "diagnose", "plain"]

_PRECEDING_LINES = 60
_AHEAD_BYTES = 2 << 20
"""How much of a log is searched before it is looked at."""
_ENOUGH = 40
"""Hits of a signature after which it is looked for no more until the server starts again."""
_TRACEBACKS = 3
_PROCESSES = 64
_HEAD_BYTES = 2000
_PASSAGES = "#passages"
_BEFORE = "#before "
# The files of vLLM that log what users write and are answered: entrypoints/logger.py, later request_logger.py.
_LOGS_REQUESTS = ("logger.py:", "request_logger.py:")


class _Rules:
    """A table of signatures made ready for reading many logs."""

    def __init__(self, table: SignatureTable) -> None:
        self.signatures = {signature.id: signature for signature in table.signatures}
        self.words = Words(_patterns(table))
        self.benign = _any_of(table.benign)
        self.benign_raw = raw_pattern(*table.benign) if table.benign else None
        self.passages = table.passages
        self.following = frozenset(signature.id for signature in table.signatures if signature.preceded_by)
        self.before = frozenset(
            word
            for signature in table.signatures
            for pattern in signature.preceded_by
            for word in required_words(pattern)
        )


@functools.cache
def _own_rules() -> _Rules:
    return _Rules(load_signatures())


class Diagnoser:
    """Reads a log as it comes and tells the causes it points to.

    Parameters:
        table: the signatures; onecat's own by default.
        threads: how many search a whole log ahead of what is being read, which changes nothing but the time that it
            takes. By default one for each processor, three at most; none on one processor.
    """

    def __init__(self, table: SignatureTable | None = None, threads: int | None = None) -> None:
        self._threads = threads_to_use() if threads is None else threads
        self._rules = _own_rules() if table is None else _Rules(table)
        self._finder = Finder(self._rules.words)
        self._sources = Sources()
        self._starts = RepeatedStarts(self._means_nothing)
        self._surroundings = Surroundings()
        self._excess: dict[str, int] = {}
        self._order = 0
        self._following: dict[str, int] = {}
        self._next_line = 1
        self._file: str | None = None
        self._head = b""
        self._new: list[Diagnosis] = []
        self._tells_new = True
        self._looks_again = False

    def feed(self, line: str) -> tuple[Diagnosis, ...]:
        """Read the next line; what is newly known after it, less what an earlier diagnosis explains."""
        self._read(block_of_lines([line], self._next_line))
        self._next_line += 1
        return self._taken()

    def feed_lines(self, lines: Iterable[str]) -> tuple[Diagnosis, ...]:
        """Read the next lines, as they come; what is newly known after them."""
        first = self._next_line
        for block in blocks_of_lines(lines):
            self._read(replace(block, first_line=first + block.first_line - 1))
            self._next_line = first + block.first_line - 1 + block.text.count(b"\n")
        return self._taken()

    def read(self, chunks: Iterable[bytes], file: str | None = None) -> int:
        """Read a whole log from its bytes, as they come; how many they are.

        Parameters:
            file: its name, told in the evidence where several logs are read.
        """
        self._file = file
        self._surroundings = Surroundings()
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                size += len(chunk)
                yield chunk

        def searched(block: Block) -> tuple[Search, list[Place]]:
            search = self._finder.search
            return search, search.places(block.text)

        blocks = blocks_of_bytes(counted())
        ahead = done_ahead(blocks, searched, lambda block: len(block.text), _AHEAD_BYTES, self._threads)
        # What is new in a whole log is not asked for before its end.
        self._tells_new = False
        with contextlib.closing(ahead):
            for block, (search, places) in ahead:
                # Blocks before this one may have changed what is searched for.
                self._read(block, places if search is self._finder.search else None)
        self._tells_new = True
        return size

    def finish(self, every: bool = False) -> tuple[Diagnosis, ...]:
        """The causes, nearest to the root first.

        Parameters:
            every: with what is no cause of the present state after them: consequences, what an earlier start failed
                by, and what is harmless.
        """
        found = ranked(each for source in self._sources for each in self._present(source))
        told: dict[str, Diagnosis] = {}
        for each in found:
            standing: Standing = "consequence" if explained(each, found) else "cause"
            if each.signature.severity == "info":
                standing = "harmless"
            if standing == "cause" or every:
                told.setdefault(each.signature.id, tell(each, standing, self._chain(each)))
        if every:
            for source in self._sources:
                for each in source.before().values():
                    told.setdefault(each.signature.id, tell(each, "earlier"))
        return tuple(sorted(told.values(), key=lambda diagnosis: get_args(Standing).index(diagnosis.standing)))

    def first_exception(self) -> Evidence | None:
        """The exception that was raised first in the last start, where the log has a traceback: for what no signature
        knows."""
        for source in self._sources:
            for run in (source.run, *([source.failed] if source.failed else [])):
                for around in run.tracebacks:
                    for chain in _chains(around):
                        if chain.root is not None and chain.raised[-1].begin >= around.number:
                            return evidence_of(chain.root, source.file)
        return None

    def _taken(self) -> tuple[Diagnosis, ...]:
        new = tuple(self._new)
        self._new.clear()
        return new

    def _present(self, source: Source) -> Iterable[Found]:
        for each in source.present().values():
            if _fits(source.run.version, each.signature):
                yield each

    def _read(self, block: Block, places: list[Place] | None = None) -> None:
        """Read the next block. places: what the present search finds in it, where that is known."""
        text, number, counted = block.text, block.first_line, 0
        search = self._finder.search
        places = search.places(text) if places is None else places
        self._surroundings.begin(text)
        self._finder.pause(name for name in self._rules.following if self._following.get(name, 0) < number)
        places = self._starts.left_out(places, search.words, text)
        candidates = iter(self._finder.candidates(text, places))
        while (candidate := next(candidates, None)) is not None:
            number += text.count(b"\n", counted, candidate.begin)
            counted = candidate.begin
            if self._finder.is_paused and not self._rules.before.isdisjoint(candidate.words):
                # Signatures that must follow this line count from it on.
                self._finder.pause(())
                rest = bisect.bisect_left(places, candidate.begin, key=BEGIN)
                candidates = iter(self._finder.candidates(text, places[rest:], candidate.begin))
                continue
            names = self._finder.names(candidate, text)
            if names:
                self._look(number, names, candidate, block)
            if self._looks_again:
                # The server starts again: what was left out counts from the next line on.
                self._looks_again = False
                if search is not self._finder.search:
                    search = self._finder.search
                    places = self._starts.left_out(search.places(text), search.words, text)
                rest = bisect.bisect_left(places, candidate.end, key=BEGIN)
                candidates = iter(self._finder.candidates(text, places[rest:], candidate.end))
        if block.unfinished and not block.begun:
            self._head = text[text.rfind(b"\n") + 1 :][:_HEAD_BYTES]
        self._surroundings.end(text)
        self._finder.learn(len(text))

    def _look(self, number: int, names: set[str], candidate: Candidate, block: Block) -> None:
        begin, end = candidate.begin, candidate.end
        for name in [name for name in names if name.startswith(_BEFORE)]:
            names.remove(name)
            self._following[name.removeprefix(_BEFORE)] = number + _PRECEDING_LINES
        names = {name for name in names if self._may_follow(name, number)}
        if not names:
            return
        raw = block.text[begin:end]
        head = self._head if block.begun and begin == 0 else raw[:_HEAD_BYTES]
        if self._rules.benign_raw is not None and self._rules.benign_raw.search(head):
            names = {name for name in names if name.startswith("#")}
            if not names:
                return
        line = read_line(raw.decode("utf-8", "replace"), number)
        source = self._sources.of(self._file, line.source)
        if source.run.ended and not marks.END.search(line.text):
            self._start(source)
        place = (block.text, begin, end)
        self._mark(source, line, names, place)
        run = source.run
        if not self._in_passage(run, line, names):
            tried = [self._rules.signatures[name] for name in names if name in self._rules.signatures]
            # What is benign in the head of a line was seen above.
            means_nothing = _logs_request(line) if len(raw) <= _HEAD_BYTES else self._means_nothing(line)
            for signature in tried if not means_nothing else ():
                self._try(run, signature, line, place)
        if "#end" in names and marks.END.search(line.text):
            run.ended = True

    def _may_follow(self, name: str, number: int) -> bool:
        """Whether what must stand before a hit of a signature is near enough."""
        return name not in self._rules.following or self._following.get(name, 0) >= number

    def _mark(self, source: Source, line: LogLine, names: set[str], place: tuple[bytes, int, int]) -> None:
        if "#start" in names and marks.START.search(line.text):
            self._start(source, line.number)
        if "#ready" in names and marks.READY.search(line.text):
            source.ready()
        if "#version" in names and (match := marks.VERSION.search(line.text)):
            source.run.version = match.group("version")
        if (
            "#traceback" in names
            and len(source.run.tracebacks) < _TRACEBACKS
            and source.run.passage is None
            and marks.TRACEBACK.search(line.text)
        ):
            source.run.tracebacks.append(self._surroundings.around(*place, line.number))
            if len(source.run.tracebacks) == _TRACEBACKS:
                self._finder.leave_out("#traceback")

    def _start(self, source: Source, number: int | None = None) -> None:
        if source.start(number):
            self._excess.clear()
            self._looks_again |= self._finder.look_for_all()

    def _in_passage(self, run: Run, line: LogLine, names: set[str]) -> bool:
        if _PASSAGES in names:
            if run.passage is not None and run.passage.ends.search(line.plain):
                run.passage = None
            if run.passage is None:
                begun = (passage for passage in self._rules.passages if passage.begins.search(line.plain))
                run.passage = next(begun, None)
        return run.passage is not None

    def _means_nothing(self, line: LogLine) -> bool:
        if _logs_request(line):
            return True
        return self._rules.benign is not None and self._rules.benign.search(line.plain) is not None

    def _try(self, run: Run, signature: Signature, line: LogLine, place: tuple[bytes, int, int]) -> None:
        name = signature.id
        if signature.sequence:
            hit = _sequence(run, signature, line)
        else:
            match = _hit(signature, line.text)
            hit = (
                None
                if match is None
                else Partial(line.number, ((line, str(match.group())),), values_of(match, line.text))
            )
        if hit is None or any(pattern.search(line.text) for pattern in signature.excluded):
            return
        found = run.found.get(name)
        if found is None:
            self._order += 1
            found = run.found[name] = Found(signature, self._order, hit.hits[0][0], self._file)
            found.around = self._surroundings.around(*place, line.number)
        if found.count < MOST_EVIDENCE:
            told = [evidence_of(each, self._file, matched) for each, matched in hit.hits]
            found.evidence += [each for each in told if each not in found.evidence]
            found.values.append(hit.values)
        else:
            self._excess[name] = self._excess.get(name, 0) + 1
            if self._excess[name] == _ENOUGH:
                self._finder.leave_out(name)
        found.count += 1
        if (
            self._tells_new
            and found.count == 1
            and _fits(run.version, signature)
            and not explained(found, run.found.values())
        ):
            self._new.append(tell(found, "harmless" if signature.severity == "info" else "cause"))

    def _chain(self, found: Found) -> Chain | None:
        """The exceptions in whose tracebacks a hit stands, or right before which."""
        if found.around is None:
            return None
        number, process = found.at.number, found.at.process
        all_chains = _chains(found.around)
        holding = (chain for chain in all_chains if chain.holding(number))
        following = (
            chain for chain in all_chains if chain.process == process and 0 < chain.raised[0].begin - number <= 3
        )
        return next(holding, None) or next(following, None)


def diagnose(lines: Iterable[str], table: SignatureTable | None = None, every: bool = False) -> tuple[Diagnosis, ...]:
    """The causes that the lines of a log point to, nearest to the root first.

    Parameters:
        lines: the log, in order, with or without timestamps before each line. It is read as it comes and not kept.
        table: the signatures; onecat's own by default.
        every: with consequences, what earlier starts failed by, and what is harmless; see `Diagnosis.standing`.
    """
    diagnoser = Diagnoser(table)
    diagnoser.feed_lines(lines)
    return diagnoser.finish(every)


def _patterns(table: SignatureTable) -> Iterable[tuple[str, Pattern]]:
    yield from marks.MARKS.items()
    for passage in table.passages:
        yield _PASSAGES, passage.begins
        yield _PASSAGES, passage.ends
    for signature in table.signatures:
        for pattern in (*signature.patterns, *signature.sequence):
            yield signature.id, pattern
        for pattern in signature.preceded_by:
            yield _BEFORE + signature.id, pattern


def _any_of(patterns: Iterable[Pattern]) -> Pattern | None:
    texts = [f"(?:{pattern.pattern})" for pattern in patterns]
    return compile_pattern("|".join(texts)) if texts else None


def _logs_request(line: LogLine) -> bool:
    """Whether a line is one that tells what users wrote."""
    return line.file is not None and line.file.rpartition("/")[2].startswith(_LOGS_REQUESTS)


def _hit(signature: Signature, text: str) -> Match | None:
    hits = (pattern.search(text) for pattern in signature.patterns)
    return next((match for match in hits if match is not None), None)


def _sequence(run: Run, signature: Signature, line: LogLine) -> Partial | None:
    """The whole sequence, when this line completes it.

    A line of no known process may be any process's.
    """
    matches = [pattern.search(line.text) for pattern in signature.sequence]
    if not any(matches):
        return None
    known = [process for name, process in run.reached if name == signature.id]
    processes = [line.process] if line.process is not None else list(dict.fromkeys([None, *known]))
    for process in processes:
        if (signature.id, process) not in run.reached and len(known) >= _PROCESSES:
            continue
        reached = run.reached.setdefault((signature.id, process), {})
        of_nobody = run.reached.get((signature.id, None), {})
        for length in range(len(signature.sequence), 0, -1):
            match = matches[length - 1]
            if match is None:
                continue
            begun = [each[length - 1] for each in (reached, of_nobody) if length - 1 in each]
            before = Partial(line.number) if length == 1 else max(begun, key=lambda each: each.first, default=None)
            if before is None or line.number - before.first > signature.within:
                continue
            hits = (*before.hits, (line, str(match.group())))
            step = Partial(before.first, hits, {**before.values, **values_of(match, line.text)})
            if length == len(signature.sequence):
                for each in {process, None}:
                    run.reached.pop((signature.id, each), None)
                return step
            reached[length] = step
    return None


def _fits(version: str | None, signature: Signature) -> bool:
    """Whether a signature is one of this engine's version, as far as the log tells it."""
    if signature.engines is None or version is None:
        return True
    from packaging.version import InvalidVersion

    try:
        return signature.engines.contains(version, prereleases=True)
    except InvalidVersion:
        return True


def _chains(around: Surrounding) -> list[Chain]:
    return chains(read_line(text, number) for number, text in around.lines())
