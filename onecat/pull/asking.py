"""Small answers, asked for with patience: listings, manifests, the size of a file."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onecat.errors import ExitCode, OnecatError
from onecat.pull.connection import Connection, TransientError
from onecat.pull.crowd import MOST_REFUSALS, Crowd, RefusedError
from onecat.pull.retries import RetryPolicy

LONGEST_LISTING = 16 * 2**20
"""Bytes: a hub's page of 1000 files has 0.3 MB, a directory of 20 000 files 4 MB."""
_HEADS_AT_ONCE = 8


@dataclass(frozen=True)
class Told:
    """An answer that was read whole. url: where it came from after redirects; first: headers before any redirect."""

    url: str
    status: int
    headers: Mapping[str, str]
    first: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Asker:
    """Asks over a connection. say: told when it waits. pause: waits that many seconds."""

    connection: Connection
    policy: RetryPolicy
    say: Callable[[str], None]
    pause: Callable[[float], object] = time.sleep

    def get(self, url: str) -> Told:
        """The whole answer to GET. Raises OnecatError (exit code 3 when nobody answers)."""
        return self._ask("GET", url, None)

    def head(self, url: str) -> Told:
        """The headers of a file."""
        return self._ask("HEAD", url, None)

    def heads(self, urls: Sequence[str]) -> list[Told]:
        """The headers of several files, asked for over several connections at once.

        The threads are daemons: a server that does not answer must not keep a Ctrl-C waiting.
        """
        found: dict[int, Told] = {}
        failures: list[BaseException] = []
        waiting = deque(enumerate(urls))

        threads = min(_HEADS_AT_ONCE, len(urls))
        crowd = Crowd(threads)

        def ask() -> None:
            while not failures:
                try:
                    number, url = waiting.popleft()
                except IndexError:
                    return
                try:
                    found[number] = self._ask("HEAD", url, crowd)
                except RefusedError:
                    waiting.appendleft((number, url))
                    return
                except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                    failures.append(error)

        running = [threading.Thread(target=ask, daemon=True) for _ in range(threads)]
        for each in running:
            each.start()
        for each in running:
            while each.is_alive() and not failures:
                each.join(0.1)
        if failures:
            raise failures[0]
        # Who left put its address back, and perhaps nobody took it any more.
        return [found[number] if number in found else self.head(url) for number, url in enumerate(urls)]

    def _ask(self, method: str, url: str, crowd: Crowd | None) -> Told:
        failures = 0
        while True:
            try:
                with self.connection.open(method, url) as answer:
                    body = answer.body(LONGEST_LISTING) if method == "GET" else b""
                    return Told(answer.url, answer.status, answer.headers, answer.first, body)
            except TransientError as error:
                failures += 1
                delay = delay_after(failures, error, self.policy, crowd)
                self.say(f"{error.found}; trying again in {delay:.0f} s")
                self.pause(delay)


def delay_after(failures: int, error: TransientError, policy: RetryPolicy, crowd: Crowd | None) -> float:
    """Seconds to wait after that many failures in a row.

    Parameters:
        error: the last one. crowd: the connections that are at work; None for one that must not leave.

    Raises OnecatError after too many failures; RefusedError when the server wants fewer connections and others stay.
    """
    if crowd is not None and error.is_refusal and failures >= MOST_REFUSALS and crowd.leave():
        raise RefusedError from error
    if failures >= policy.most(error.asked):
        raise _given_up(failures, error) from error
    return policy.delay(failures, error.asked, random.random())


def _given_up(failures: int, error: TransientError) -> OnecatError:
    if error.is_refusal:
        return OnecatError(
            f"{error.found}, {failures} times in a row",
            expected="an answer; the server says that it has too much to do, or that we ask too often",
            next_steps=[
                "type the same command again some minutes later, or with --jobs 1: what has been fetched is kept",
                "a hub answers more often to who names himself: --token-file FILE",
            ],
            code=ExitCode.UNREACHABLE,
        )
    return OnecatError(
        f"{error.found}, {failures} times in a row",
        expected="an answer",
        next_steps=[
            "check the network, and HTTPS_PROXY if this machine needs a proxy",
            "type the same command again: what has been fetched is kept",
        ],
        code=ExitCode.UNREACHABLE,
    )
