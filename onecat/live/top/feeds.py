"""Samples of many hosts at the same time. A host that stops answering is told as such, and comes back by itself."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onecat.errors import OnecatError
from onecat.live.top.collecting import read_samples, sampling
from onecat.live.top.watched import Watched
from onecat.observe.metrics import Sample

if TYPE_CHECKING:
    from onecat.hosts import Conversation, Machine

AGAIN_SECONDS = 5.0
"""Between two attempts to reach a host."""
LOOK_AGAIN_SECONDS = 15.0
"""After so long without the server's metrics it is looked up anew: another release may serve on another port."""


@dataclass(frozen=True)
class Feed:
    """One host.

    machine, watched: to begin with; None where it could not be reached, `error` says why. open: makes a connection
    anew, and finds what to watch there.
    """

    host: str
    open: Callable[[], tuple[Machine, Watched]]
    machine: Machine | None = None
    watched: Watched | None = None
    error: str | None = None


class Feeds:
    """Reads all hosts in threads; use as a context manager.

    feeds: the hosts. interval: seconds between two samples of one.
    """

    def __init__(self, feeds: Sequence[Feed], interval: float) -> None:
        self._interval = interval
        self._queue: queue.SimpleQueue[Sample] = queue.SimpleQueue()
        self._over = threading.Event()
        self._talks: dict[str, Conversation] = {}
        self.watched = {feed.host: feed.watched or Watched() for feed in feeds}
        """What is watched on each host now."""
        self._threads = [threading.Thread(target=self._run, args=(feed,), daemon=True) for feed in feeds]

    def __enter__(self) -> Feeds:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for talk in list(self._talks.values()):
            with contextlib.suppress(OnecatError, OSError):
                talk.close()
        for thread in self._threads:
            thread.join(timeout=2.0)

    def next(self, timeout: float) -> Sample | None:
        """The next sample of any host; None when none comes in time."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def _run(self, feed: Feed) -> None:
        machine, watched, error = feed.machine, feed.watched, feed.error
        while not self._over.is_set():
            if machine is None:
                if error is not None:
                    self._queue.put(Sample(time.time(), feed.host, error=error))
                    self._wait_telling(feed.host, error)
                    if self._over.is_set():
                        return
                try:
                    machine, watched = feed.open()
                except (OnecatError, OSError) as failure:
                    error = _words(failure)
                    continue
            self.watched[feed.host] = watched or Watched()
            try:
                for sample in self._samples(machine, watched):
                    self._queue.put(sample)
                error = "the sampling agent has ended"
            except _LookAgain:
                error = None
            except (OnecatError, OSError) as failure:
                error = _words(failure)
            if machine is not feed.machine or error is not None:
                with contextlib.suppress(OnecatError, OSError):
                    machine.close()
            machine = None

    def _wait_telling(self, host: str, error: str) -> None:
        """Tell each interval that the host does not answer, until it is to be tried again."""
        again = time.monotonic() + AGAIN_SECONDS
        while not self._over.wait(min(self._interval, max(0.0, again - time.monotonic()))):
            if time.monotonic() >= again:
                return
            self._queue.put(Sample(time.time(), host, error=error))

    def _samples(self, machine: Machine, watched: Watched | None) -> Iterator[Sample]:
        silent_since: float | None = None
        with sampling(machine, watched, interval=self._interval) as talk:
            self._talks[machine.name] = talk
            try:
                for sample in read_samples(talk, machine.name, self._interval):
                    yield _with_note(sample, watched)
                    if self._over.is_set():
                        return
                    if watched is None or watched.metrics_url is None or sample.engine is not None:
                        silent_since = None
                    elif silent_since is None:
                        silent_since = time.monotonic()
                    elif time.monotonic() - silent_since > LOOK_AGAIN_SECONDS:
                        raise _LookAgain
            finally:
                self._talks.pop(machine.name, None)


class _LookAgain(Exception):
    """What is watched may have changed."""


def _with_note(sample: Sample, watched: Watched | None) -> Sample:
    """The sample with the reason why no server is watched."""
    if watched is None or watched.note is None:
        return sample
    return replace(sample, notes=(*sample.notes, ("server", watched.note)))


def _words(failure: Exception) -> str:
    return failure.found if isinstance(failure, OnecatError) else str(failure)
