"""Changes that are tried, and those that are told."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.planner.questions import Question
from onecat.planner.records import Layout


@dataclass(frozen=True)
class Change:
    """One change. step: for a person, as it stands under serve. largest: tokens of context that fit then."""

    step: str
    largest: int


@dataclass(frozen=True)
class Attempt:
    """What is tried on the memory model. told: the change in words."""

    told: str
    question: Question
    layout: Layout
