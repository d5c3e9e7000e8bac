"""The decisions of a plan: its layout, the arguments for that, and the memory that they take. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onecat.config import Profile
from onecat.engines import FlagSchema
from onecat.planner.arguments import with_batch, with_sizes
from onecat.planner.cost import cost_of, load_of
from onecat.planner.data_types import with_types
from onecat.planner.flags import FIELDS, Setting
from onecat.planner.layouts import EXPERT_PARALLEL, Candidate, candidate, ranked
from onecat.planner.prompts import Prompts
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
    layout = layout_of(question.settings, question.schema)
    none_holds = bool(compared) and all(each.sizing.largest < (each.sizing.possible or 0) for each in compared)
    if compared and all(each.layout != layout for each in compared):
        own = candidate(with_own(question, layout), layout, prompts)
        compared = compared if own is None else (*compared, own)
    question = with_sizes(question, layout, prompts, is_open=is_open, none_holds=none_holds)
    sizing = size(question, layout)
    return Decision(question, layout, sizing, compared)


def _with_layout(question: Question, best: Candidate) -> Question:
    settings = dict(question.settings)
    layout = best.layout
    counts = {
        "tensor-parallel-size": layout.tensor_parallel,
        "pipeline-parallel-size": layout.pipeline_parallel,
        "data-parallel-size": layout.replicas,
    }
    for name, count in counts.items():
        flag = question.schema.flag(name, count)
        if flag is not None and count != question.schema.default(name):
            why = f"the best of the layouts that were compared: {best.why}"
            settings[name] = Setting(flag, count, "planner", why, None, LAYOUT_SOURCE)
    flag = question.schema.flag(EXPERT_PARALLEL, True)
    if best.experts_whole and flag is not None and EXPERT_PARALLEL not in settings:
        why = "the ranks of this layout cannot each have a part of every expert: they get whole ones"
        settings[EXPERT_PARALLEL] = Setting(flag, True, "planner", why, None, EXPERT_SOURCE)
    return replace(question, settings=settings)


def layout_of(settings: Mapping[str, Setting], schema: FlagSchema) -> Layout:
    """The layout that the flags come to."""
    return Layout(
        tensor_parallel=_count(settings, schema, "tensor-parallel-size"),
        pipeline_parallel=_count(settings, schema, "pipeline-parallel-size"),
        replicas=_count(settings, schema, "data-parallel-size"),
    )


def _count(settings: Mapping[str, Setting], schema: FlagSchema, name: str) -> int:
    value = settings[name].value if name in settings else schema.default(name)
    return max(1, value) if isinstance(value, int) else 1


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
