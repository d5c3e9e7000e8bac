"""The nearest changes that make a model fit: each is tried on the memory model, and told with what it yields. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onecat.planner.changes.cards import larger_card, more_cards, other_layout
from onecat.planner.changes.flags import all_flags, eager, fp8_cache, more_share, smaller_batch
from onecat.planner.changes.records import Attempt, Change
from onecat.planner.changes.weights import four_bits, more_space, offload
from onecat.planner.questions import Question
from onecat.planner.records import Layout
from onecat.planner.sizing import Sizing, size

LEAST_USEFUL = 256
"""Tokens of context below which a shorter context is no advice."""

LEAST_SERVED = 2048
"""Tokens of context below which a change that still leaves the context short is no advice."""

MOST_TOLD = 5


def nearest_changes(question: Question, layout: Layout, sizing: Sizing) -> tuple[Change, ...]:
    """Changes after which the asked context fits: of flags and layout, then of the checkpoint, then of the cards.

    Where the model is not served at all, also changes with which a shorter context fits. A few at most.
    """
    found: list[Change] = []
    if sizing.largest >= LEAST_USEFUL:
        found.append(Change(f"max-model-len: {sizing.largest} (the longest context that fits)", sizing.largest))
    if question.hardware.platform == "cpu":
        return (*found, *more_space(question, layout, sizing))
    here = (
        fp8_cache(question, layout),
        smaller_batch(question, layout, sizing),
        eager(question, layout),
        more_share(question, layout),
        all_flags(question, layout, sizing),
        other_layout(question, layout),
        four_bits(question, layout),
    )
    elsewhere = (more_cards(question, layout), larger_card(question, layout))
    for kinds in (here, elsewhere):
        if len(found) < MOST_TOLD:
            found += _tried(kinds, MOST_TOLD - len(found), with_shorter=sizing.largest < LEAST_USEFUL)
    if len(found) < MOST_TOLD:
        found += offload(question, layout, sizing)
    return tuple(found)


def _tried(kinds: Sequence[Iterator[Attempt]], most: int, *, with_shorter: bool) -> list[Change]:
    """The first of each kind that fits, then those with which a shorter context does, the longest first."""
    whole: list[Change] = []
    shorter: list[Change] = []
    for attempts in kinds:
        best: Change | None = None
        for each in attempts:
            then = size(each.question, each.layout)
            if then is None:
                continue
            if then.fits:
                whole.append(Change(each.told, then.largest))
                best = None
                break
            if then.largest >= max(LEAST_SERVED, best.largest + 1 if best else 0):
                best = Change(f"{each.told}, with max-model-len: {then.largest}", then.largest)
        if best is not None and with_shorter:
            shorter.append(best)
        if len(whole) == most:
            break
    return (whole + sorted(shorter, key=lambda each: -each.largest))[:most]
