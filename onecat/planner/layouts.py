"""The ways to spread a model over the cards of a host, ranked with reasons. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from onecat.planner.cost import Cost, Load, cost_of, exchanged_bytes, load_of
from onecat.planner.hardware import Card
from onecat.planner.parts import undivided
from onecat.planner.prompts import Prompts
from onecat.planner.questions import Question, with_flags
from onecat.planner.records import Holds, Layout
from onecat.planner.sizing import SHORTEST, Sizing, held_at_once, size
from onecat.planner.topology import arranged, slowest

MOST_CARDS = 16
EXPERT_PARALLEL = "enable-expert-parallel"

HANDFUL = 4
"""Of the longest requests that are to come, at once: fewer would wait for each other."""

STAGES = (2, 4, 8)
"""Counts of pipeline stages that are compared, beside one and as many as there are cards."""

AS_LONG = 0.9
"""Share of the longest context from which a shorter one is as useful, where no layout holds the whole."""


@dataclass(frozen=True)
class Wanted:
    """The context that a layout shall hold. tokens: of one request; at_once: such requests. told: in words."""

    tokens: int
    at_once: int
    told: str


@dataclass(frozen=True)
class Candidate:
    """One layout. sizing: of one replica. cards: by rank, all replicas. holds: of the wanted context, the whole, a
    shorter one, or none. why: in a sentence or two. experts_whole: expert parallelism deals experts out whole.
    shares_experts: its data-parallel ranks are no copies, but share the experts of a mixture.
    """

    layout: Layout
    sizing: Sizing
    cost: Cost
    cards: tuple[Card, ...]
    holds: Holds
    wanted: Wanted
    why: str = ""
    experts_whole: bool = False
    shares_experts: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        """The cards by their indices, as `gpus` of onecat.yaml."""
        return tuple(each.index for each in self.cards)

    @property
    def together(self) -> int:
        """Cards that work step by step together: those of one copy, or all where data-parallel ranks share experts."""
        return self.layout.cards if self.shares_experts else self.layout.ranks


def wanted_of(question: Question, prompts: Prompts | None = None) -> Wanted:
    """What a person asked for, else the longest requests to come, else the checkpoint's whole context."""
    asked = question.count("max-model-len")
    possible = question.checkpoint.architecture.max_position_embeddings
    if asked is not None:
        return Wanted(asked, 1, f"the {asked:,} tokens of max-model-len")
    if prompts is not None:
        longest = min(prompts.longest, possible or prompts.longest)
        return Wanted(longest, HANDFUL, f"{HANDFUL} requests of {longest:,} tokens, the longest to come")
    if possible is None:
        return Wanted(SHORTEST, 1, "any context")
    return Wanted(possible, 1, f"the checkpoint's whole context of {possible:,} tokens")


def ranked(
    question: Question,
    most: int | None = None,
    prompts: Prompts | None = None,
    settled: Callable[[Question, Layout], Question] | None = None,
) -> tuple[Candidate, ...]:
    """All layouts that the model's heads, layers and blocks allow, the best first.

    First those that hold the wanted context: among them the one whose token costs least when the machine is busy, and
    of those about as cheap the one with the fewest cards to a copy, without stages, quickest for one request. Then
    those that hold a shorter context, the longest first; then the rest, by what they lack.

    Parameters:
        most: cards to use at most; None for all.
        settled: the question with what a layout gets beside, as the size of its batch; None for what is set.
    """
    count = min(len(question.hardware.cards), most or MOST_CARDS, MOST_CARDS)
    tried = (
        _candidate(asked if settled is None else settled(asked, layout), layout, prompts)
        for layout, asked in _possible(question, count)
    )
    found = [each for each in tried if each is not None]
    if not found:
        return ()
    whole = [each for each in found if each.holds == "whole"]
    shorter = [each for each in found if each.holds == "shorter"]
    longest = max((each.sizing.largest for each in shorter), default=0)
    useful = [each for each in shorter if each.sizing.largest >= AS_LONG * longest]
    useless = sorted(
        (each for each in shorter if each not in useful), key=lambda each: (-each.sizing.largest, each.cost.token)
    )
    lacking = sorted(
        (each for each in found if each.holds == "none"),
        key=lambda each: (each.sizing.short_of, each.layout.pipeline_parallel),
    )
    close = question.hardware.speeds.close
    order = [*_by_cost(whole, close), *_by_cost(useful, close), *useless, *lacking]
    return tuple(replace(each, why=_why(question, each, order[0])) for each in order)


def _by_cost(found: Sequence[Candidate], close: float) -> list[Candidate]:
    cheapest = min((each.cost.token for each in found), default=0.0)

    def rank(each: Candidate) -> tuple[bool, float, int, float]:
        is_close = each.cost.token <= cheapest * (1 + close)
        return (
            not is_close,
            each.together if is_close else each.cost.token,
            each.layout.pipeline_parallel,
            each.cost.single,
        )

    return sorted(found, key=rank)


def candidate(question: Question, layout: Layout, prompts: Prompts | None = None) -> Candidate | None:
    """One layout with its memory, cost and reason; None where the memory is not known."""
    made = _candidate(question, layout, prompts)
    return None if made is None else replace(made, why=_why(question, made, made))


def _candidate(question: Question, layout: Layout, prompts: Prompts | None) -> Candidate | None:
    """The same without its reason, for which a comparison needs the best."""
    hardware = question.hardware
    cards = arranged(hardware, layout.tensor_parallel, layout.cards)
    if len(cards) < layout.cards:
        return None
    sizing = size(question, layout)
    if sizing is None:
        return None
    load: Load = load_of(prompts, hardware.speeds)
    architecture = question.checkpoint.architecture
    cost = cost_of(architecture, hardware, cards, layout, sizing, load)
    wanted = wanted_of(question, prompts)
    experts_whole = question.value(EXPERT_PARALLEL) is True
    return Candidate(
        layout,
        sizing,
        cost,
        cards,
        _holds(sizing, wanted),
        wanted,
        experts_whole=experts_whole,
        shares_experts=layout.replicas > 1 and any(each.count > 1 for each in architecture.weights),
    )


def _holds(sizing: Sizing, wanted: Wanted) -> Holds:
    if sizing.largest < SHORTEST:
        return "none"
    enough = wanted.at_once == 1 or held_at_once(sizing, wanted.tokens) >= wanted.at_once
    return "whole" if sizing.largest >= wanted.tokens and enough else "shorter"


def _possible(question: Question, count: int) -> Iterator[tuple[Layout, Question]]:
    """Layouts, each with the question as it is asked for it: experts that cannot be cut are dealt out whole."""
    layers = question.checkpoint.architecture.layers or 1
    for tensor in range(1, count + 1):
        most = min(count // tensor, layers)
        for stages in sorted({1, most, *(each for each in STAGES if each <= most)}):
            layout = Layout(tensor, stages, count // (tensor * stages))
            against = undivided(question, layout)
            if not against:
                yield layout, question
            elif all(each.experts for each in against) and EXPERT_PARALLEL not in question.settings:
                whole = with_flags(question, enable_expert_parallel=True)
                if not undivided(whole, layout):
                    yield layout, whole


def is_better(one: Candidate, other: Candidate) -> bool:
    """Whether a candidate holds as much of the wanted context as another, and costs clearly less."""
    order: tuple[Holds, ...] = ("whole", "shorter", "none")
    if order.index(one.holds) != order.index(other.holds):
        return order.index(one.holds) < order.index(other.holds)
    return one.holds == "whole" and one.cost.token < other.cost.token


def _why(question: Question, each: Candidate, best: Candidate) -> str:
    return f"{_told_context(each)}; {_told_division(question, each)}{_told_cost(each, best)}"


def _told_context(each: Candidate) -> str:
    if each.holds == "whole":
        return f"holds {each.wanted.told}"
    if each.holds == "none":
        return "does not fit"
    if each.sizing.largest < each.wanted.tokens:
        return f"holds {each.sizing.largest:,} tokens of context, not {each.wanted.told}"
    count = held_at_once(each.sizing, each.wanted.tokens)
    return f"holds {count:.1f} requests of {each.wanted.tokens:,} tokens at once, not {each.wanted.told}"


def _told_division(question: Question, each: Candidate) -> str:
    hardware, cards = question.hardware, each.cards
    tensor, stages, replicas = each.layout.tensor_parallel, each.layout.pipeline_parallel, each.layout.replicas
    link = slowest(hardware, cards[:tensor])
    across = slowest(hardware, cards[: tensor * stages])
    parts = []
    if tensor > 1 and link is not None:
        moved = exchanged_bytes(question.checkpoint.architecture, tensor)
        size_told = f"{moved / 2**20:.1f} MiB" if moved >= 2**20 else f"{moved / 2**10:.0f} KiB"
        parts.append(f"{tensor} cards share each layer over {link.told}, {size_told} per token")
    if stages > 1 and across is not None:
        parts.append(f"{stages} stages pass tokens on over {across.told}")
    if tensor * stages == 1 and not each.shares_experts:
        parts.append("the model on one card: nothing crosses a link")
    if each.shares_experts:
        whole = slowest(hardware, cards)
        over = "" if whole is None else f", over {whole.told}"
        kind = "whole ones" if each.experts_whole else "a part of each"
        parts.append(f"{replicas} data-parallel ranks share the experts, {kind}{over}, and go step by step together")
    elif replicas > 1:
        parts.append(f"{replicas} copies" + (f", each of {tensor * stages}" if tensor * stages > 1 else ""))
    return "; ".join(parts)


def _told_cost(each: Candidate, best: Candidate) -> str:
    """Against the best, in words; nothing where it does not fit."""
    if each is best or each.holds == "none" or best.holds == "none":
        return ""
    told = f"; a token costs {each.cost.token / best.cost.token:.2f} times as much as in the first"
    if each.cost.exchange >= 0.1:
        told += f", {each.cost.exchange:.0%} of it for what cards exchange"
    return told
