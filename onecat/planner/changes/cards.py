"""The same model over the cards in another way, over more of them, or on larger ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onecat.knowledge.hardware import gpu_models
from onecat.planner.changes.records import Attempt
from onecat.planner.changes.words import told_layout
from onecat.planner.hardware import GIB, MIB, Card
from onecat.planner.layouts import ranked
from onecat.planner.parts import undivided
from onecat.planner.questions import Question, with_flags
from onecat.planner.records import Layout


def other_layout(question: Question, layout: Layout) -> Iterator[Attempt]:
    best = next(iter(ranked(question)), None)
    if best is not None and best.holds != "none" and best.layout != layout:
        asked = with_flags(question, enable_expert_parallel=True) if best.experts_whole else question
        yield Attempt(told_layout(best.layout, best.experts_whole), asked, best.layout)


def more_cards(question: Question, layout: Layout) -> Iterator[Attempt]:
    """The fewest cards of the same kind that hold it."""
    used = layout.ranks
    hardware, layers = question.hardware, question.checkpoint.architecture.layers or 1
    if not hardware.cards:
        return
    last = hardware.cards[-1]
    for count in (2, 4, 8, 16):
        if count <= max(used, len(hardware.cards)):
            continue
        cards = hardware.cards + tuple(
            replace(last, index=last.index + extra + 1) for extra in range(count - len(hardware.cards))
        )
        wider = replace(question, hardware=replace(hardware, cards=cards, pairs=()))
        for tensor, stages in ((count, 1), (count // 2, 2), (count // 4, 4)):
            if tensor >= 1 and stages <= layers and not undivided(question, Layout(tensor)):
                yield Attempt(
                    f"{count} such cards: {told_layout(Layout(tensor, stages))}", wider, Layout(tensor, stages)
                )


def larger_card(question: Question, layout: Layout) -> Iterator[Attempt]:
    """The smallest card of the table on which it fits in the same number."""
    current = max((each.memory for each in question.hardware.cards), default=0)
    if not current:
        return
    count = layout.ranks
    tried: set[int] = set()
    for model in sorted(gpu_models(), key=lambda each: each.memory_mib or 0):
        memory = (model.memory_mib or 0) * MIB
        if memory <= current * 1.05 or memory in tried or model.capability < (question.capability or 0):
            continue
        tried.add(memory)
        cards = tuple(Card(index, model.name, memory, 0, model.capability, model) for index in range(count))
        wider = replace(question, hardware=replace(question.hardware, cards=cards), capability=model.capability)
        yield Attempt(f"a card with {memory / GIB:.0f} GiB or more, as {model.name}", wider, layout)
