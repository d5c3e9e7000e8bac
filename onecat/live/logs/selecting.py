"""Which lines are told, and what they mean. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from onecat.live.logs.records import Entry, Finding, LeftOut, Source, Told, Wanted
from onecat.observe import Diagnoser

MOST_LINES = 200_000
"""Lines of one log that are kept until they are told, where no number bounds them: some 40 MB."""


class Selection:
    """Reads lines, those of one log in their order, and says what is to be told of them.

    Lines without what `--grep` looks for are left out, and are read for the diagnosis all the same.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._diagnosers: dict[Source, Diagnoser] = {}

    def events(self, entry: Entry) -> list[Entry | Finding]:
        """The line, where it is wanted, and what is newly known after it."""
        wanted = self._wanted
        if wanted.since is not None and (entry.moment is None or entry.moment < wanted.since):
            return []
        found: list[Entry | Finding] = []
        if wanted.pattern is None or wanted.pattern.search(entry.text):
            found.append(entry)
        if wanted.diagnose:
            diagnoser = self._diagnosers.setdefault(entry.source, Diagnoser())
            found += [Finding(entry.source, each, entry.moment) for each in diagnoser.feed(entry.text)]
        return found


def kept_of(entries: Iterable[Entry], wanted: Wanted, most: int = MOST_LINES) -> Iterator[Entry | Finding | LeftOut]:
    """What is to be told of one log that is read to its end: the last lines, and what they mean.

    most: how many are kept, where `wanted` says no number: of earlier ones only the number is told.
    """
    selection = Selection(wanted)
    kept: deque[list[Entry | Finding]] = deque()
    lines = left_out = 0
    source = None
    for entry in entries:
        source = entry.source
        events = selection.events(entry)
        if not events:
            continue
        kept.append(events)
        lines += isinstance(events[0], Entry)
        if lines > (most if wanted.lines is None else wanted.lines):
            # With the line go those that --grep has hidden, of which only the meaning was told.
            while not isinstance(kept.popleft()[0], Entry):
                pass
            lines -= 1
            left_out += 1
    if source is not None and left_out and wanted.lines is None:
        yield LeftOut(source, left_out, most)
    while kept:
        yield from kept.popleft()


def last_of(events: Sequence[Told], count: int | None, begun: float | None = None) -> list[Told]:
    """The last lines of events in the order of time, as many as are wanted (None: all), and what they mean.

    begun: lines that were written from then on (seconds since 1970) are not of the past, and all told.
    """
    if count is None:
        return list(events)
    old = [
        index
        for index, event in enumerate(events)
        if isinstance(event, Entry) and (begun is None or event.moment is None or event.moment < begun)
    ]
    if len(old) <= count:
        return list(events)
    begin = old[-count] if count else old[-1] + 1
    while not count and begin < len(events) and isinstance(events[begin], Finding):
        begin += 1  # what the last of the lines that are not told means
    return list(events[begin:])
