"""When a failed request is tried again. Pure: chance and the time come in from outside."""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers that may be another one a moment later (RFC 9110, section 15; RFC 6585 for 429)."""


@dataclass(frozen=True)
class RetryPolicy:
    """attempts: failures in a row, without one new byte, after which it is given up. Times in seconds.

    longest_asked: the longest wait that a server may ask for by Retry-After; attempts_asked: failures in a row that
    each came with such a wish: who says when to come back means to answer then.
    """

    attempts: int = 6
    first_seconds: float = 0.5
    longest_seconds: float = 30.0
    longest_asked: float = 300.0
    attempts_asked: int = 12

    def most(self, asked: float | None) -> int:
        """Failures in a row after which it is given up. asked: as in `delay`, of the last one."""
        return self.attempts if asked is None else max(self.attempts, self.attempts_asked)

    def delay(self, failures: int, asked: float | None, chance: float) -> float:
        """Seconds to wait after that many failures in a row.

        Parameters:
            asked: what the server's Retry-After says, in seconds. chance: 0 to 1, so that not all clients that were
                thrown out together come back together.
        """
        if asked is not None:
            return min(asked, self.longest_asked) + chance * self.first_seconds
        longest = min(self.first_seconds * 2.0 ** min(max(failures - 1, 0), 30), self.longest_seconds)
        return longest * (0.5 + chance / 2)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that Retry-After asks for, from a number or an HTTP date; None without one (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return max((date - now).total_seconds(), 0.0)
