"""What was found in a log so far, kept apart for each start of the server that the log tells of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from onecat.observe.lines import LogLine
from onecat.observe.records import Evidence, Passage, Signature
from onecat.observe.surroundings import Passage as Surrounding

MOST_EVIDENCE = 5
_SOURCES = 64
_SAME_START_LINES = 60


@dataclass
class Found:
    """Hits of one signature in one run. order: the how many-th to be found. at: the first line of the first one."""

    signature: Signature
    order: int
    at: LogLine
    file: str | None = None
    values: list[dict[str, str]] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    around: Surrounding | None = None
    count: int = 0


@dataclass(frozen=True)
class Partial:
    """A sequence as far as it goes. first: number of its first line. hits: each line with what matched in it."""

    first: int
    hits: tuple[tuple[LogLine, str], ...] = ()
    values: dict[str, str] = field(default_factory=dict)


@dataclass
class Run:
    """One start of a server, from its first line on.

    started: the last line that said so. ready: whether it came to serve. version: of the engine. reached: for each
    signature with a sequence and each process, for each length the partial sequence that began last.
    """

    started: int | None = None
    ready: bool = False
    ended: bool = False
    version: str | None = None
    found: dict[str, Found] = field(default_factory=dict)
    reached: dict[tuple[str, str | None], dict[int, Partial]] = field(default_factory=dict)
    tracebacks: list[Surrounding] = field(default_factory=list)
    passage: Passage | None = None

    def holds(self, *severities: str) -> bool:
        return any(each.signature.severity in severities for each in self.found.values())


@dataclass
class Source:
    """One host, container or file of a log: its present run, the last failed one that counts, and those before it."""

    file: str | None = None
    run: Run = field(default_factory=Run)
    failed: Run | None = None
    earlier: dict[str, Found] = field(default_factory=dict)

    def start(self, line: int | None = None) -> bool:
        """The server starts, as this line says. False where it is the same start as before.

        A server says it more than once, so only after something has happened it is another start.
        """
        run = self.run
        again = run.ready or run.ended or run.holds("fail")
        near = line is not None and run.started is not None and line - run.started <= _SAME_START_LINES
        if not again and (near or not run.holds("warn")):
            run.started = line or run.started
            return False
        if run.holds("fail"):
            self._get_over()
            self.failed = run
        else:
            self._remember(run)
        self.run = Run(started=line, version=run.version)
        return True

    def ready(self) -> None:
        """The server serves: whatever made earlier starts fail does so no more."""
        self.run.ready = True
        self._get_over()

    def _get_over(self) -> None:
        if self.failed is not None:
            self._remember(self.failed)
            self.failed = None

    def _remember(self, run: Run) -> None:
        for name, found in run.found.items():
            if found.signature.severity != "info":
                found.around = None
                self.earlier[name] = found

    def present(self) -> dict[str, Found]:
        """What counts at the end of the log."""
        if self.failed is None:
            return dict(self.run.found)
        if self.run.holds("fail"):
            return dict(self.run.found)
        return {**self.failed.found, **self.run.found}

    def before(self) -> dict[str, Found]:
        """What counted in earlier starts, and no more."""
        present = self.present()
        last = self.failed.found if self.failed is not None and self.run.holds("fail") else {}
        together = {**self.earlier, **last}
        return {
            name: found
            for name, found in together.items()
            if name not in present and found.signature.severity != "info"
        }


class Sources:
    """The sources of a log by name; no more than 64, beyond which all share one."""

    def __init__(self) -> None:
        self._sources: dict[tuple[str | None, str | None], Source] = {}

    def __iter__(self) -> Iterator[Source]:
        return iter(self._sources.values())

    def of(self, file: str | None, name: str | None) -> Source:
        key = (file, name)
        if key not in self._sources:
            if len(self._sources) >= _SOURCES:
                key = (file, None)
            self._sources.setdefault(key, Source(file))
        return self._sources[key]
