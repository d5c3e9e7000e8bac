"""Small answers, asked for with patience: listings, manifests, the size of a file."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from onecat.errors import ExitCode, OnecatError
from onecat.pull.connection import Connection, TransientError
from onecat.pull.retries import RetryPolicy

LONGEST_LISTING = 64 * 2**20
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
        """The headers of several files, asked for over several connections at once."""
        with ThreadPoolExecutor(max_workers=_HEADS_AT_ONCE) as pool:
            return list(pool.map(self.head, urls))

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
