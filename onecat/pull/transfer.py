"""Fetching one piece of a file over one connection, with retries where it stopped."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from onecat.errors import ExitCode, OnecatError
from onecat.pull.asking import delay_after
from onecat.pull.connection import Answer, Connection, TransientError
from onecat.pull.crowd import Crowd
from onecat.pull.part import Claim, Part
from onecat.pull.retries import RetryPolicy

MOST_VERSIONS = 3
"""How often a file may change under our hands before it is given up."""
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)")


class ChangedError(Exception):
    """The server has another version of the file than the bytes so far are of."""


class StoppedError(Exception):
    """The pull ends; what is written stays."""


@dataclass(frozen=True)
class Transfer:
    """Fetches pieces. say: told when it waits. stop: set when the pull ends."""

    connection: Connection
    crowd: Crowd
    policy: RetryPolicy
    say: Callable[[str], None]
    stop: threading.Event

    def fetch(self, part: Part, claim: Claim) -> None:
        """Fetch a piece to its end.

        Raises OnecatError when it cannot be had, StoppedError, RefusedError, and OSError when it cannot be written.
        """
        failures, versions, furthest = 0, 1, claim.position
        while not self.stop.is_set() and not claim.is_dropped:
            try:
                if self._attempt(part, claim):
                    return
            except ChangedError:
                versions += 1
                if versions > MOST_VERSIONS:
                    raise OnecatError(
                        f"{part.file.path} keeps changing at the source while it is fetched",
                        expected="one version of the file",
                        next_steps=["try again later"],
                        code=ExitCode.UNREACHABLE,
                    ) from None
                self.say(f"{part.file.path} is another version now; it is fetched from its beginning")
                part.validator = None
                part.size = part.file.size
                part.begin_anew(claim, None)
                furthest = 0
            except TransientError as error:
                failures = 1 if claim.position > furthest else failures + 1
                furthest = max(furthest, claim.position)
                delay = delay_after(failures, error, self.policy, self.crowd)
                if delay >= 2:
                    self.say(f"{part.file.path}: {error.found}; trying again in {delay:.0f} s")
                self.stop.wait(delay)
        if not claim.is_dropped:
            raise StoppedError

    def _attempt(self, part: Part, claim: Claim) -> bool:
        """One request for what is left of the piece. Whether the piece is whole now."""
        if claim.end is not None and claim.position >= claim.end:
            return True
        asked = claim.position
        headers = {}
        if part.can_range is not False:
            headers["Range"] = f"bytes={asked}-{'' if claim.end is None else claim.end - 1}"
            validator = part.validator
            if asked and validator is not None and not validator.startswith("W/") and not part.is_content_known:
                headers["If-Range"] = validator  # RFC 9110, 13.1.5: only a strong validator
        with self.connection.open("GET", part.file.url, headers) as answer:
            if self._accept(part, claim, answer, asked):
                return True
            for chunk in answer.chunks():
                if self.stop.is_set():
                    raise StoppedError
                more = 0 if claim.end is None else max(claim.position + len(chunk) - claim.end, 0)
                if more and claim.end == part.size:
                    raise _other_size(part, "more")
                if not part.write(claim, chunk[: len(chunk) - more]):
                    return True
                if more:  # else the body is read to its end, so that the connection can be used again
                    break
        if claim.end is None:
            claim.end = part.size = claim.position  # the end was told by the end of the body alone
        if claim.position < claim.end:
            raise TransientError(f"{part.file.path}: the answer ended {claim.end - claim.position} bytes early")
        return True

    def _accept(self, part: Part, claim: Claim, answer: Answer, asked: int) -> bool:
        """See what the answer is of. Whether there is nothing left to read.

        Raises ChangedError, TransientError and OnecatError for an answer that does not continue the file.
        """
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise OnecatError(
                f"the server compresses {part.file.path} although it was asked not to",
                expected="the bytes of the file",
                code=ExitCode.UNREACHABLE,
            )
        found = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
        if answer.status == 416:
            total = int(found[3]) if found and found[3] != "*" else None
            if total is not None and total == asked and part.size in (None, total):
                part.size = claim.end = total
                return True
            raise ChangedError
        if answer.status == 206:
            if found is None or found[1] is None or int(found[1]) != asked:
                raise TransientError(f"{part.file.path}: the server sends another range than it was asked for")
            self._same_version(part, answer, int(found[3]) if found[3] != "*" else None)
            part.can_range = True
            if part.size is not None and claim.end is None:
                claim.end = part.size
            return claim.end == claim.position
        had_bytes, could_range = bool(part.done), part.can_range
        if could_range and asked and not self._is_other(part, answer, answer.content_length):
            raise TransientError(f"{part.file.path}: the server sends the whole file in place of a range")
        self._same_version(part, answer, answer.content_length)
        if had_bytes:
            self.say(f"{part.file.path}: this server cannot go on in the middle of a file; it begins anew")
        part.begin_anew(claim, False)
        return claim.end == 0

    def _is_other(self, part: Part, answer: Answer, total: int | None) -> bool:
        if None not in (part.size, total) and part.size != total:
            return True
        told = answer.validator
        return not part.is_content_known and None not in (part.validator, told) and part.validator != told

    def _same_version(self, part: Part, answer: Answer, total: int | None) -> None:
        """Note the version of the file, or see that it is the one noted before."""
        if self._is_other(part, answer, total):
            if part.file.size is not None and total is not None and total != part.file.size:
                raise _other_size(part, str(total))
            raise ChangedError
        part.size = total if part.size is None else part.size
        part.validator = part.validator or answer.validator


def _other_size(part: Part, sent: str) -> OnecatError:
    return OnecatError(
        f"{part.file.path} has {part.file.size if part.file.size is not None else part.size} bytes by the listing, and "
        f"the server sends {sent}",
        expected="the same size in both",
        next_steps=["type the same command again: the listing may have been older than the file"],
        code=ExitCode.UNREACHABLE,
    )
