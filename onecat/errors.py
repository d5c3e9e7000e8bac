"""What a user is told when something cannot go on, and the exit code that goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every onecat command (DESIGN.md, a contract: extend, never renumber)."""

    FINE = 0
    NO = 1
    USAGE = 2
    UNREACHABLE = 3
    ROLLED_BACK = 4
    NEEDS_PERSON = 5


class OnecatError(Exception):
    """An expected failure, told in the form: what was found, what was expected, where, what to type next.

    Parameters:
        found: one sentence, what onecat saw.
        expected: one sentence, what would have been right.
        where: a place a person can go to: `file:line:column`, a path, a host, a port.
        next_steps: commands or edits that lead on, most likely first.
        code: the exit code of the command that ends with this error.
        details: evidence lines (a log excerpt, the text of another program).
    """

    def __init__(
        self,
        found: str,
        *,
        expected: str | None = None,
        where: str | None = None,
        next_steps: Sequence[str] = (),
        code: ExitCode = ExitCode.USAGE,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected
        self.where = where
        self.next_steps = tuple(next_steps)
        self.code = code
        self.details = tuple(details)

    def told_as(
        self,
        *,
        found: str | None = None,
        where: str | None = None,
        next_steps: Sequence[str] | None = None,
        code: ExitCode | None = None,
    ) -> OnecatError:
        """The same failure as it is told elsewhere: what is given takes the place of what it said."""
        return OnecatError(
            self.found if found is None else found,
            expected=self.expected,
            where=self.where if where is None else where,
            next_steps=self.next_steps if next_steps is None else next_steps,
            code=self.code if code is None else code,
            details=self.details,
        )
