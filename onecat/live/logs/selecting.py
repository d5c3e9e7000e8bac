"""Which lines are told, and what they mean. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from onecat.live.logs.records import Entry, Finding, Source, Wanted
from onecat.observe import Diagnoser


class Selection:
    """Reads the merged lines and says what is to be told of them.

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
            found += [Finding(entry.source, diagnosis) for diagnosis in diagnoser.feed(entry.text)]
        return found

    def past(self, entries: Iterable[Entry], begun: float | None = None) -> list[Entry | Finding]:
        """What is to be told of lines that are there already: the last ones, as many as are wanted.

        begun: lines that were written from then on (seconds since 1970) are not of the past, and all told.
        """
        found = [event for entry in entries for event in self.events(entry)]
        count = self._wanted.lines
        if count is None:
            return found
        old = [
            index
            for index, event in enumerate(found)
            if isinstance(event, Entry) and (begun is None or event.moment is None or event.moment < begun)
        ]
        return found[old[-count] :] if len(old) > count else found
