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
        return self._ask("GET", url)

    def head(self, url: str) -> Told:
        """The headers of a file."""
        return self._ask("HEAD", url)

    def heads(self, urls: Sequence[str]) -> list[Told]:
        """The headers of several files, asked for over several connections at once.

        The threads are daemons: a server that does not answer must not keep a Ctrl-C waiting.
        """
        found: dict[int, Told] = {}
        failures: list[BaseException] = []
        waiting = deque(enumerate(urls))

        def ask() -> None:
            while not failures:
                try:
                    number, url = waiting.popleft()
                except IndexError:
                    return
                try:
                    found[number] = self.head(url)
                except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                    failures.append(error)

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(min(_HEADS_AT_ONCE, len(urls)))]
        for each in threads:
            each.start()
        for each in threads:
            while each.is_alive() and not failures:
                each.join(0.1)
        if failures:
            raise failures[0]
        return [found[number] for number in range(len(urls))]

    def _ask(self, method: str, url: str) -> Told:
        failures = 0
        while True:
            try:
                with self.connection.open(method, url) as answer:
                    body = answer.body(LONGEST_LISTING) if method == "GET" else b""
                    return Told(answer.url, answer.status, answer.headers, answer.first, body)
            except TransientError as error:
                failures += 1
                if failures >= self.policy.attempts:
                    raise given_up(error, failures) from error
                delay = self.policy.delay(failures, error.asked, random.random())
                self.say(f"{error.found}; trying again in {delay:.0f} s")
                self.pause(delay)


def given_up(error: TransientError, failures: int) -> OnecatError:
    """What is told after too many failures in a row."""
    return OnecatError(
        f"{error.found}, {failures} times in a row",
        expected="an answer",
        next_steps=[
            "check the network, and HTTPS_PROXY if this machine needs a proxy",
            "type the same command again: what has been fetched is kept",
        ],
        code=ExitCode.UNREACHABLE,
    )
