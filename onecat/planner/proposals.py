"""What the planner proposes for a flag, and how it enters a question. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onecat.planner.flags import FlagValue, Setting, shown
from onecat.planner.prompts import Prompts
from onecat.planner.questions import Question
from onecat.planner.records import Layout


@dataclass(frozen=True)
class Asked:
    """What a proposal looks at. is_open: nobody but the planner chooses, as for cards alone without a profile.
    none_holds: words for that no layout holds the whole context, where several were compared."""

    question: Question
    layout: Layout
    prompts: Prompts | None
    is_open: bool
    none_holds: str = ""


@dataclass(frozen=True)
class Proposal:
    name: str
    value: FlagValue
    why: str
    source: str | None = None


Propose = Callable[[Asked], Proposal | None]


def proposed(asked: Asked, proposals: Sequence[Propose]) -> Question:
    """The question with what each proposal says, in turn: a later one sees what an earlier one settled."""
    for propose in proposals:
        found = propose(asked)
        if found is not None:
            asked = replace(asked, question=with_proposal(asked.question, found))
    return asked.question


def with_proposal(question: Question, found: Proposal) -> Question:
    """The question with a proposed flag; as it is where the engine's version lacks the flag."""
    flag = question.schema.flag(found.name, found.value)
    if flag is None:
        return question
    below = question.settings.get(found.name)
    over = f"; the profile's {shown(below.value)} gives way" if below is not None else ""
    setting = Setting(flag, found.value, "planner", found.why + over, None, found.source)
    return replace(question, settings={**question.settings, found.name: setting})


def is_set(question: Question, name: str) -> bool:
    """Whether a person set it; what a profile says of batches gives way to known prompts."""
    setting = question.settings.get(name)
    return setting is not None and setting.layer != "profile"
