"""Work on many hosts at once: a host that hangs costs its own limit and never delays another one."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.asking import Desk

Result = TypeVar("Result")
MOST_THREADS = 256


@dataclass(frozen=True)
class Task(Generic[Result]):
    """What is to be done for one host.

    name: of the host. work: is given a function that sets the seconds after which the task is given up; without a call
    of it there is no limit.
    """

    name: str
    work: Callable[[Callable[[float], None]], Result]


@dataclass
class _Run:
    """A task that runs. thread: its number. waited: seconds for which that had waited before. limit: it may take."""

    started: float
    thread: int
    waited: float
    limit: float = math.inf


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """How a task ended: with a result or with an error. seconds: that it took, waits that do not count left out."""

    name: str
    seconds: float
    result: Result | None = None
    error: BaseException | None = None


class FanOut(Generic[Result]):
    """Runs tasks in threads from the moment it is made; `ended` and `outcomes` wait for them.

    Parameters:
        tasks: one for each host.
        parallel: how many may run at the same time, None for as many as there can be threads.
        desk: where they ask the person; who waits for them answers, in the main thread.

    The threads do not keep the process alive: after Ctrl-C, or when a task was given up, nothing waits for them.
    """

    def __init__(self, tasks: Sequence[Task[Result]], *, desk: Desk, parallel: int | None = None) -> None:
        self._tasks = tasks
        self._desk = desk
        self._waiting = deque(range(len(tasks)))
        self._running: dict[int, _Run] = {}
        self._outcomes: deque[tuple[int, Outcome[Result]]] = deque()
        self._lock = threading.Lock()
        for _ in range(min(parallel or MOST_THREADS, len(tasks))):
            self._start_thread()

    def ended(self) -> Iterator[tuple[int, Outcome[Result]]]:
        """The tasks as they end: the number of each and its outcome."""
        for _ in self._tasks:
            while not self._outcomes:
                self._give_up_late_ones()
                with self._lock:
                    next_end = min(map(self._end, self._running), default=math.inf)
                if not self._outcomes:
                    self._desk.serve(None if next_end == math.inf else max(0.0, next_end - time.monotonic()))
            yield self._outcomes.popleft()

    def _start_thread(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        thread = threading.get_ident()
        while True:
            with self._lock:
                if not self._waiting:
                    return
                index = self._waiting.popleft()
                run = self._running[index] = _Run(time.monotonic(), thread, self._desk.seconds_waited(thread))
            task, result, error = self._tasks[index], None, None
            try:
                result = task.work(functools.partial(self._set_limit, run))
            except BaseException as raised:  # noqa: BLE001 - told by whoever asks for the outcomes
                error = raised
            with self._lock:
                if self._running.pop(index, None) is None:
                    return  # given up meanwhile, and another thread goes on
                self._outcomes.append((index, Outcome(task.name, self._seconds(run), result, error)))
            self._desk.wake()

    def _seconds(self, run: _Run) -> float:
        return time.monotonic() - run.started - (self._desk.seconds_waited(run.thread) - run.waited)

    def _set_limit(self, run: _Run, seconds: float) -> None:
        run.limit = seconds
        self._desk.wake()

    def _end(self, index: int) -> float:
        run = self._running[index]
        return run.started + run.limit + self._desk.seconds_waited(run.thread) - run.waited

    def _give_up_late_ones(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = {index: self._running[index] for index in tuple(self._running) if self._end(index) <= now}
            for index, run in late.items():
                del self._running[index]
                name = self._tasks[index].name
                found = f"no answer within {run.limit:g} s"
                error = OnecatError(found, where=name, code=ExitCode.UNREACHABLE)
                self._outcomes.append((index, Outcome(name, now - run.started, error=error)))
        for _ in late:
            self._start_thread()
