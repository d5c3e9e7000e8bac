"""Questions to the person at the terminal, one at a time, whichever host they come from.

Threads that talk to hosts put their questions here; the main thread asks them while it waits. So Ctrl-C at a prompt
ends the command with the terminal's echo switched on again, and no two prompts mix.
"""

from __future__ import annotations

import contextlib
import getpass
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class _Question:
    text: str
    echo: bool
    answered: threading.Event = field(default_factory=threading.Event)
    answer: str | None = None


@dataclass
class _Wait:
    """seconds: of waits that are over. began: when the present one began."""

    seconds: float = 0.0
    began: float | None = None

    @property
    def total(self) -> float:
        began = self.began
        return self.seconds + (time.monotonic() - began if began is not None else 0.0)


class Desk:
    """Where questions are put and answered. It must be made in the main thread, which then calls `serve`."""

    def __init__(self) -> None:
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._waits: dict[int, _Wait] = {}

    @property
    def is_attended(self) -> bool:
        """Whether there is a person: standard input and standard error are a terminal."""
        return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))

    def ask(self, text: str, *, echo: bool = False) -> str | None:
        """Ask from any thread and wait for the answer; None when the person gave none (Ctrl-D)."""
        question = _Question(text, echo)
        if threading.current_thread() is threading.main_thread():
            self._put(question)
            return question.answer
        with self.waiting():
            self._questions.put(question)
            question.answered.wait()
        return question.answer

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait that does not count: for the person, for another one who asks, or for a turn."""
        wait = self._waits.setdefault(threading.get_ident(), _Wait())
        outermost = wait.began is None
        if outermost:
            wait.began = time.monotonic()
        try:
            yield
        finally:
            if outermost:
                wait.seconds, wait.began = wait.total, None

    def seconds_waited(self, thread: int) -> float:
        """How long a thread has waited so far without that it counts."""
        wait = self._waits.get(thread)
        return wait.total if wait else 0.0

    def wake(self) -> None:
        """Let `serve` return."""
        self._questions.put(None)

    def serve(self, seconds: float | None) -> None:
        """In the main thread: answer questions until `wake` or until some seconds are over."""
        try:
            question = self._questions.get(timeout=seconds)
        except queue.Empty:
            return
        if question is not None:
            self._put(question)
            question.answered.set()

    @staticmethod
    def _put(question: _Question) -> None:
        try:
            if question.echo:
                print(question.text, end="", file=sys.stderr, flush=True)
                question.answer = sys.stdin.readline().rstrip("\n") or None
            else:
                question.answer = getpass.getpass(question.text, sys.stderr)
        except EOFError:
            print(file=sys.stderr)
