"""The ways to spread a model over the cards of a host, ranked with reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecat.planner.cost import Cost, cost_of, exchanged_bytes
from onecat.planner.hardware import Card, Hardware
from onecat.planner.parts import undivided
from onecat.planner.records import Layout
from onecat.planner.sizing import Question, Sizing, size
from onecat.planner.topology import arranged, slowest

MOST_CARDS = 16
WANTED_LENGTH = 32768
"""Tokens of context that a layout shall hold where nobody asked for a length; the model's own where that is less."""

STAGES = (2, 4, 8)
"""Counts of pipeline stages that are compared, beside one and as many as there are cards."""

CLOSE = 1.1
"""A cost up to a tenth above the best is as good: the figures are rough, and the simpler layout wins."""


@dataclass(frozen=True)
class Candidate:
    """One layout. sizing: of one replica. cards: by rank, all replicas. why: in one sentence."""

    layout: Layout
    sizing: Sizing
    cost: Cost
    cards: tuple[Card, ...]
    why: str

    @property
    def order(self) -> tuple[int, ...]:
        """The cards by their indices, as `gpus` of onecat.yaml."""
        return tuple(each.index for each in self.cards)


def ranked(question: Question, most: int | None = None) -> tuple[Candidate, ...]:
    """All layouts that the model's heads, layers and blocks allow, the best first.

    First those that hold a context as long as is asked for, then those that hold a shorter one, by the cost of a token
    when the machine is busy; then the rest, by what they lack.

    Parameters:
        most: cards to use at most; None for all.
    """
    count = min(len(question.hardware.cards), most or MOST_CARDS, MOST_CARDS)
    found = [each for layout in _possible(question, count) if (each := candidate(question, layout)) is not None]
    if not found:
        return ()
    cheapest = min((each.cost.token for each in found if _class(each, question) == 0), default=None)

    def rank(each: Candidate) -> tuple[int, bool, float, int]:
        if _class(each, question) == 2:
            return (2, True, each.sizing.short_of, each.layout.pipeline_parallel)
        close = cheapest is not None and each.cost.token <= cheapest * CLOSE
        together = each.layout.tensor_parallel * each.layout.pipeline_parallel
        return (
            _class(each, question),
            not close,
            together if close else each.cost.token,
            each.layout.pipeline_parallel,
        )

    return tuple(sorted(found, key=rank))


def candidate(question: Question, layout: Layout) -> Candidate | None:
    """One layout with its memory, cost and reason; None where the memory is not known."""
    hardware = question.hardware
    per_replica = layout.tensor_parallel * layout.pipeline_parallel
    cards = arranged(hardware, layout.tensor_parallel, per_replica * layout.replicas)
    if len(cards) < per_replica * layout.replicas:
        return None
    sizing = size(question, layout)
    if sizing is None:
        return None
    cost = cost_of(question.checkpoint.architecture, hardware, cards[:per_replica], layout, sizing.estimate)
    return Candidate(layout, sizing, cost, cards, _why(question, hardware, layout, cards, sizing))


def _possible(question: Question, count: int) -> Iterator[Layout]:
    layers = question.checkpoint.architecture.layers or 1
    for tensor in range(1, count + 1):
        if undivided(question, tensor):
            continue
        most = min(count // tensor, layers)
        for stages in sorted({1, most, *(each for each in STAGES if each <= most)}):
            yield Layout(tensor, stages, count // (tensor * stages))


def wanted_length(question: Question) -> int:
    """Tokens of context that a layout shall hold."""
    asked = question.count("max-model-len")
    possible = question.checkpoint.architecture.max_position_embeddings
    return asked or min(possible or WANTED_LENGTH, WANTED_LENGTH)


def is_as_long(one: Candidate, other: Candidate, question: Question) -> bool:
    """Whether a candidate holds a context as long as another, or as long as is wanted."""
    return _class(one, question) <= _class(other, question)


def _class(each: Candidate, question: Question) -> int:
    if each.sizing.largest >= wanted_length(question):
        return 0
    return 1 if each.sizing.largest > 0 else 2


def _why(question: Question, hardware: Hardware, layout: Layout, cards: tuple[Card, ...], sizing: Sizing) -> str:
    tensor, stages = layout.tensor_parallel, layout.pipeline_parallel
    holds = f"holds {sizing.largest:,} tokens of context" if sizing.largest else "does not fit"
    link = slowest(hardware, cards[:tensor])
    across = slowest(hardware, cards[: tensor * stages])
    parts = []
    if tensor > 1 and link is not None:
        each = exchanged_bytes(question.checkpoint.architecture, tensor)
        size_told = f"{each / 2**20:.1f} MiB" if each >= 2**20 else f"{each / 2**10:.0f} KiB"
        parts.append(f"{tensor} cards share each layer over {link.told}, {size_told} per token")
    if stages > 1 and across is not None:
        parts.append(f"{stages} stages pass tokens on over {across.told}")
    if tensor * stages == 1:
        parts.append("the model on one card: nothing crosses a link")
    if layout.replicas > 1:
        parts.append(
            f"{layout.replicas} copies, each of {tensor * stages}"
            if tensor * stages > 1
            else f"{layout.replicas} copies"
        )
    return f"{holds}; {'; '.join(parts)}"
