"""Whether a canary release holds, from nginx's access log. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from onecat.config.schema import Canary

# waiting: not long enough or not enough requests. holds: it may take over. broken: it must not.
Word = Literal["waiting", "holds", "broken"]
P99 = 0.99
SERVER_ERRORS = range(500, 600)
_PAIRS = ", "
"""nginx joins what it knows of several tries by this: https://nginx.org/en/docs/http/ngx_http_upstream_module.html"""


@dataclass(frozen=True)
class Sample:
    """One try of one request at one server. seconds: from the first byte of the request to the last of the answer."""

    address: str
    at: float
    failed: bool
    seconds: float


@dataclass(frozen=True)
class Figures:
    """What one release has answered. p99_seconds: of what it answered well; None without such answers."""

    requests: int = 0
    errors: int = 0
    p99_seconds: float | None = None

    @property
    def error_rate(self) -> float:
        return self.errors / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Verdict:
    """What is to be done with the canary, and the figures that say so."""

    word: Word
    why: str
    canary: Figures
    stable: Figures
    seconds_left: float


def samples(lines: Iterable[str]) -> tuple[Sample, ...]:
    """What an access log of ours says; lines of another form, as one that was cut off, are left out."""
    found: list[Sample] = []
    for line in lines:
        try:
            entry = json.loads(line)
            found += _tries(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return tuple(found)


def _tries(entry: dict[str, Any]) -> list[Sample]:
    """The tries of one request. A server that did not answer at all has status `-`, or nginx's own 502 or 504."""
    if not entry["upstream"] or entry["upstream"] == "-":
        return []
    addresses = entry["upstream"].split(_PAIRS)
    statuses = str(entry["upstream_status"]).split(_PAIRS)
    at = datetime.fromisoformat(entry["time"]).timestamp()
    seconds = float(entry["seconds"])
    return [
        Sample(address, at, not status.isdigit() or int(status) in SERVER_ERRORS, seconds)
        for address, status in zip(addresses, statuses, strict=True)
    ]


def figures(of: Sequence[Sample]) -> Figures:
    """Requests, errors and P99 of samples."""
    good = sorted(each.seconds for each in of if not each.failed)
    return Figures(len(of), len(of) - len(good), percentile(good, P99) if good else None)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of values in rising order: the smallest that `share` of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def judge(
    log: Sequence[Sample], canary: str, stable: str, since: float, now: float, alive: bool, limits: Canary
) -> Verdict:
    """What is to be done.

    Parameters:
        canary, stable: ADDRESS:PORT of the servers as nginx names them. since: when the canary got its share, seconds
            since the epoch. alive: whether the canary's server is running and healthy now.

    A canary is broken as soon as its server is gone, or its error rate is too high with enough requests to say so; its
    latency is judged at the end only, when there is something to compare.
    """
    recent = [each for each in log if each.at >= since]
    its = figures([each for each in recent if each.address == canary])
    others = figures([each for each in recent if each.address == stable])
    left = max(0.0, since + limits.promote_after_seconds - now)

    def verdict(word: Word, why: str) -> Verdict:
        return Verdict(word, why, its, others, left)

    if not alive:
        return verdict("broken", "its server does not run, or /health does not answer")
    if its.requests >= limits.least_requests and its.error_rate > limits.max_error_rate:
        found = f"{its.errors} of {its.requests} answers are server errors ({its.error_rate:.1%})"
        return verdict("broken", f"{found}; allowed are {limits.max_error_rate:.1%}")
    if left > 0:
        return verdict("waiting", f"{left:.0f} s to go")
    if its.requests < limits.least_requests:
        return verdict("waiting", f"{its.requests} of at least {limits.least_requests} requests so far")
    if its.p99_seconds is not None and others.p99_seconds is not None:
        ratio = its.p99_seconds / others.p99_seconds if others.p99_seconds > 0 else 1.0
        if ratio > limits.max_p99_ratio:
            slow = f"its P99 is {its.p99_seconds:.2f} s, {ratio:.2f} times that of the stable release"
            return verdict("broken", f"{slow}; allowed is {limits.max_p99_ratio:g}")
    return verdict("holds", "error rate and P99 are within their limits")
