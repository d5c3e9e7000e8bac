"""The form of a case: a check, some facts, and what it must say of them."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.config import Profile
from onecat.doctor import Settings, Status
from onecat.facts import Facts
from tests.unit.doctor.examples import V100

DEFAULTS = Settings()


@dataclass(frozen=True)
class Case:
    """A check's answers on some facts: the status and a part of the title of each of its findings, in order."""

    check: str
    expected: tuple[tuple[Status, str], ...]
    facts: Facts
    profile: Profile | None = V100
    settings: Settings = DEFAULTS


def case(
    check: str,
    status: Status,
    title: str,
    facts: Facts,
    profile: Profile | None = V100,
    settings: Settings = DEFAULTS,
) -> Case:
    """One finding."""
    return Case(check, ((status, title),), facts, profile, settings)


def both(
    check: str,
    first: tuple[Status, str],
    second: tuple[Status, str],
    facts: Facts,
    profile: Profile | None = V100,
) -> Case:
    """Two findings, as for two GPUs."""
    return Case(check, (first, second), facts, profile)
