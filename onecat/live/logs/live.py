"""The logs as they are written, one thread for each, from one release to the next."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onecat.deploy.releases import Outcome
from onecat.errors import OnecatError
from onecat.hosts import Desk, Machine
from onecat.live.logs.merging import Merger
from onecat.live.logs.records import Entry, Event, Finding, Loss, Notice, Opened, Source, Wanted
from onecat.live.logs.selecting import MOST_LINES, Selection, last_of
from onecat.live.logs.sources import Log, lost_error, newer_logs, open_logs

HOLD_SECONDS = 0.5
"""How long a line waits for earlier ones of other logs: above what a busy connection delays, below what annoys."""
_QUIET_SECONDS, _PATIENCE_SECONDS = 0.3, 1.0
"""Without a line for so long the past has been told: when every log had one; when some had none."""
_LONGEST_PAST_SECONDS = 10.0
_TICK_SECONDS, _AWAIT_SECONDS = 0.1, 0.3
_MOST_WAITING = 20_000
LOOK_SECONDS = 2.0
"""Between two looks for a newer release."""
_BEGINS: Mapping[Outcome, str] = {
    "starting": "release {} starts: its log from here on",
    "serving": "release {} serves now: its log from here on",
    "canary": "release {} is tried as a canary: its log from here on",
}


@dataclass(frozen=True)
class _Opened:
    """Logs of a host are about to be read."""

    host: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class _Heard:
    """A line that is not told was read."""

    source: Source
    moment: float | None


@dataclass(frozen=True)
class _Ended:
    """A log of a host has ended. error: why, where not by itself."""

    host: str
    error: Exception | None = None


_Message = Entry | Finding | Notice | _Heard | _Opened | _Ended


@dataclass
class _Progress:
    """logs: of each host that are still read; None until they are known. begun: seconds since 1970. spoken: sources
    that had a line; present: that had one which was written after the beginning. ended: logs that have."""

    logs: dict[str, int | None]
    begun: float
    opened: int = 0
    spoken: set[Source] = field(default_factory=set)
    present: set[Source] = field(default_factory=set)
    ended: int = 0

    @property
    def is_over(self) -> bool:
        return all(count == 0 for count in self.logs.values())

    @property
    def is_alone(self) -> bool:
        """Whether there is one log, so that its lines wait for no others."""
        return self.are_all_opened and self.opened == 1

    @property
    def are_all_opened(self) -> bool:
        return all(count is not None for count in self.logs.values())

    def has_told_the_past(self, quiet: float, since: float) -> bool:
        """quiet: seconds without a line. since: seconds since the beginning."""
        if self.is_over or since > _LONGEST_PAST_SECONDS:
            return True
        if self.are_all_opened and len(self.present) + self.ended >= self.opened:
            return True
        needed = _QUIET_SECONDS if len(self.spoken) + self.ended >= self.opened else _PATIENCE_SECONDS
        return self.are_all_opened and quiet > needed


def follow_logs(machines: Sequence[Machine], desk: Desk, wanted: Wanted) -> Iterator[Event]:
    """The last lines of all logs together in the order of time, then new ones as they come; ends with the last log.

    Releases that begin meanwhile are followed as well, unless a release is wanted. The main thread must call it: it
    asks the person what the hosts want to know meanwhile.
    """
    following = _Following(desk, wanted, machines)
    try:
        yield from _followed(following, machines, desk, wanted)
    finally:
        following.is_over.set()


def _followed(following: _Following, machines: Sequence[Machine], desk: Desk, wanted: Wanted) -> Iterator[Event]:
    started = heard = time.monotonic()
    past: Merger | None = Merger(0.0)
    merger = Merger(HOLD_SECONDS)
    while True:
        desk.serve(_TICK_SECONDS)
        now = time.monotonic()
        for message in following.messages():
            if isinstance(message, Entry | Finding | Notice):
                heard = now
                (merger if past is None else past).add(message, now)
            elif isinstance(message, _Heard):
                heard = now
            elif isinstance(message, _Opened):
                yield Opened(message.sources)
            elif isinstance(message, _Ended) and message.error is not None:
                yield Loss(message.host, message.error)
        for machine in machines:
            if machine.is_lost and following.give_up(machine):
                error = lost_error(machine, None)
                assert error is not None
                yield Loss(machine.name, error)
        progress = following.progress
        # The log itself gives as many lines as are wanted.
        is_exact = progress.is_alone and wanted.pattern is None and wanted.lines != 0
        if past is not None and (
            is_exact or len(past) > MOST_LINES or progress.has_told_the_past(now - heard, now - started)
        ):
            yield from last_of(past.rest(), wanted.lines, progress.begun)
            past = None
        yield from merger.rest() if progress.is_over or progress.is_alone else merger.ready(now)
        if progress.is_over and past is None:
            return


class _Following:
    """The threads that read, and what they have told."""

    def __init__(self, desk: Desk, wanted: Wanted, machines: Sequence[Machine]) -> None:
        self._desk = desk
        self._wanted = wanted
        # Bounded: a log that is written faster than it can be told is read as fast as it can be told.
        self._queue: queue.Queue[_Message] = queue.Queue(_MOST_WAITING)
        self._woken = threading.Event()
        self._lost: set[str] = set()
        self._looking = {machine.name: threading.Lock() for machine in machines}
        self._releases: dict[str, set[int]] = {machine.name: set() for machine in machines}
        self.is_over = threading.Event()
        self.progress = _Progress({machine.name: None for machine in machines}, time.time())
        for machine in machines:
            threading.Thread(target=self._open, args=(machine,), daemon=True).start()

    def messages(self) -> Iterator[_Message]:
        """What has come since, less what comes from hosts that were given up."""
        self._woken.clear()
        for _ in range(_MOST_WAITING):
            try:
                message = self._queue.get_nowait()
            except queue.Empty:
                return
            host = message.host if isinstance(message, _Opened | _Ended) else message.source.host
            if host in self._lost and isinstance(message, _Opened | _Ended):
                continue
            self._note(message, host)
            yield message

    def give_up(self, machine: Machine) -> bool:
        """Wait no longer for a host; False where that is known already."""
        if machine.name in self._lost or self.progress.logs[machine.name] == 0:
            return False
        self._lost.add(machine.name)
        self.progress.logs[machine.name] = 0
        return True

    def _note(self, message: _Message, host: str) -> None:
        progress = self.progress
        if isinstance(message, Entry | _Heard):
            progress.spoken.add(message.source)
            if message.moment is not None and message.moment >= progress.begun:
                progress.present.add(message.source)
        elif isinstance(message, _Opened):
            progress.logs[host] = (progress.logs[host] or 0) + len(message.sources)
            progress.opened += len(message.sources)
        elif isinstance(message, _Ended) and message.error is not None:
            self._lost.add(host)
            progress.logs[host] = 0
        elif isinstance(message, _Ended):
            progress.logs[host] = (progress.logs[host] or 1) - 1
            progress.ended += 1

    def _open(self, machine: Machine) -> None:
        try:
            logs = open_logs(machine, self._wanted)
        except Exception as error:  # noqa: BLE001 - told by whoever reads the events
            self._put(_Ended(machine.name, lost_error(machine, error)))
            return
        known = self._releases[machine.name]
        known.update(each.reader.source.release for each in logs if each.reader.source.release is not None)
        self._put(_Opened(machine.name, tuple(log.reader.source for log in logs)))
        self._start(machine, logs)
        source = logs[0].reader.source
        while self._wanted.release is None and not self.is_over.wait(LOOK_SECONDS):
            try:
                self._look(machine, source.deployment)
            except Exception as error:  # noqa: BLE001 - told by whoever reads the events
                if not machine.is_lost:
                    self._put(Notice(source, f"newer releases are no longer looked for: {_found(error)}"))
                return

    def _look(self, machine: Machine, name: str | None) -> None:
        """Follow the releases that have begun since."""
        with self._looking[machine.name]:
            known = self._releases[machine.name]
            newer = newer_logs(machine, name, known)
            if not newer:
                return
            known.update(release.number for _, release in newer)
            self._put(_Opened(machine.name, tuple(log.reader.source for log, _ in newer)))
            for log, release in newer:
                self._put(Notice(log.reader.source, _BEGINS[release.outcome].format(release.number)))
        self._start(machine, [log for log, _ in newer], all_lines=True)

    def _start(self, machine: Machine, logs: Sequence[Log], *, all_lines: bool = False) -> None:
        for log in logs:
            threading.Thread(target=self._follow, args=(machine, log, all_lines), daemon=True).start()

    def _follow(self, machine: Machine, log: Log, all_lines: bool) -> None:
        error: Exception | None = None
        selection = Selection(self._wanted)
        source = log.reader.source
        told = 0.0
        try:
            while log.is_awaited() and not self.is_over.wait(_AWAIT_SECONDS):
                pass
            for line in log.lines.follow(None if all_lines else self._wanted.count):
                entry = log.reader.entry(line)
                events = selection.events(entry)
                for event in events:
                    self._put(event)
                if not events and time.monotonic() - told > _TICK_SECONDS:
                    told = time.monotonic()
                    self._put(_Heard(source, entry.moment))
            if source.release is not None:
                if self._wanted.release is None:
                    self._look(machine, source.deployment)
                self._put(Notice(source, f"the log of release {source.release} has ended"))
        except Exception as raised:  # noqa: BLE001 - told by whoever reads the events
            error = raised
        self._put(_Ended(machine.name, lost_error(machine, error)))

    def _put(self, message: _Message) -> None:
        self._queue.put(message)
        if not self._woken.is_set():
            self._woken.set()
            self._desk.wake()


def _found(error: Exception) -> str:
    return error.found if isinstance(error, OnecatError) else f"{type(error).__name__}: {error}"
