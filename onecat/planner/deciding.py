"""The decisions of a plan: its layout, the arguments for that, and the memory that they take. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.config import Profile
from onecat.planner.arguments import with_batch, with_sizes
from onecat.planner.cost import cost_of, load_of
from onecat.planner.data_types import with_types
from onecat.planner.flags import FIELDS
from onecat.planner.layouts import EXPERT_PARALLEL, Candidate, candidate, ranked
from onecat.planner.prompts import Prompts
from onecat.planner.proposals import Proposal, with_proposal
from onecat.planner.questions import Question
from onecat.planner.records import Layout
from onecat.planner.sizing import Sizing, size
from onecat.planner.topology import arranged

EXPERT_SOURCE = "https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment/"
LAYOUT_SOURCE = "https://docs.vllm.ai/en/latest/serving/parallelism_scaling/"


@dataclass(frozen=True)
class Decision:
    """What a plan comes to. question: with all flags, those of the planner among them. compared: layouts by rank."""

    question: Question
    layout: Layout
    sizing: Sizing | None
    compared: tuple[Candidate, ...]


def decide(question: Question, profile: Profile, prompts: Prompts | None) -> Decision:
    """The layout, then the arguments for it, then the memory that they take."""
    open_layout = not profile.launch.layouts and not any(name in question.settings for name in FIELDS)
    is_open = not profile.launch.layouts
    question = with_types(question, is_open=is_open)

    def with_own(asked: Question, layout: Layout) -> Question:
        return with_batch(asked, layout, prompts, is_open=is_open)

    compared = ranked(question, prompts=prompts, settled=with_own) if len(question.hardware.cards) > 1 else ()
    if open_layout and compared:
        question = _with_layout(question, compared[0])
    layout = layout_of(question)
    none_holds = bool(compared) and all(each.sizing.largest < (each.sizing.possible or 0) for each in compared)
    if compared and all(each.layout != layout for each in compared):
        own = candidate(with_own(question, layout), layout, prompts)
        compared = compared if own is None else (*compared, own)
    question = with_sizes(question, layout, prompts, is_open=is_open, none_holds=none_holds)
    sizing = size(question, layout)
    return Decision(question, layout, sizing, compared)


def _with_layout(question: Question, best: Candidate) -> Question:
    why = f"the best of the layouts that were compared: {best.why}"
    for name, field in FIELDS.items():
        count = getattr(best.layout, field)
        if count != question.schema.default(name):
            question = with_proposal(question, Proposal(name, count, why, LAYOUT_SOURCE))
    if best.experts_whole and EXPERT_PARALLEL not in question.settings:
        why = "the ranks of this layout cannot each have a part of every expert: they get whole ones"
        question = with_proposal(question, Proposal(EXPERT_PARALLEL, True, why, EXPERT_SOURCE))
    return question


def layout_of(question: Question) -> Layout:
    """The layout that the flags come to."""
    counts = {field: question.value(name) for name, field in FIELDS.items()}
    return Layout(**{field: max(1, value) if isinstance(value, int) else 1 for field, value in counts.items()})


def rough_seconds(made: Decision, prompts: Prompts | None) -> float | None:
    """Of a token when the machine is busy; None where nothing is known of the cards' speed."""
    found, layout = made.sizing, made.layout
    if found is None or made.question.hardware.platform != "cuda" or not found.fits:
        return None
    architecture, hardware = made.question.checkpoint.architecture, made.question.hardware
    cards = arranged(hardware, layout.tensor_parallel, len(found.cards) * layout.replicas)
    if len(cards) < len(found.cards) * layout.replicas:
        cards = found.cards * layout.replicas
    return cost_of(architecture, hardware, cards, layout, found, load_of(prompts, hardware.speeds)).token
