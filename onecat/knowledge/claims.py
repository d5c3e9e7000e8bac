"""Reads the table of what public how-to articles claim, and finds claims by check or by topic."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

from onecat.knowledge.tables import frozen, table

Verdict = Literal["true", "false", "partly", "unverified"]


@dataclass(frozen=True)
class Claim:
    """What is said, and whether it is so.

    truth: how it is. checks: ids of doctor's checks that look at it. topics: words to find it by.
    """

    id: str
    claim: str
    verdict: Verdict
    truth: str
    checks: tuple[str, ...]
    topics: tuple[str, ...]
    source: tuple[str, ...]


@functools.cache
def all_claims() -> tuple[Claim, ...]:
    """Every row of claims.yaml, in its order."""
    return tuple(Claim(**frozen(row)) for row in table("claims.yaml"))


def claims_about(check: str) -> tuple[Claim, ...]:
    """The claims that a check looks at."""
    return tuple(claim for claim in all_claims() if check in claim.checks)


def find_claims(word: str) -> tuple[Claim, ...]:
    """The claims with this id or topic, or else those whose claim holds the word as a whole; any case."""
    wanted = word.lower()
    by_topic = tuple(claim for claim in all_claims() if wanted == claim.id or wanted in claim.topics)
    if by_topic:
        return by_topic
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    return tuple(claim for claim in all_claims() if pattern.search(claim.claim))
