"""A rough relative cost of a token: for ranking layouts, not for predicting speed. Pure.

A step of the engine reads the weights once, whatever its batch, or calculates with them for longer than that; it reads
the KV cache of every request in it; under tensor parallelism each layer sums the hidden state over its ranks twice
(after attention and after the feed-forward network); each pipeline stage passes it on once. A machine is busy when
every copy of the model has as many requests as its engine and its KV cache take; it reads their prompts meanwhile.
The constants are in speeds.yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onecat.checkpoints import Architecture
from onecat.planner.hardware import Card, Hardware
from onecat.planner.prompts import Prompts
from onecat.planner.records import Layout
from onecat.planner.sizing import Sizing, held_at_once
from onecat.planner.speeds import Speeds
from onecat.planner.topology import Link, link_between, slowest

SUMS_PER_LAYER = 2
"""Megatron's division of a layer: one all-reduce after attention, one after the MLP. https://arxiv.org/abs/1909.08053"""

BYTES = 2
"""Of one element of the hidden state."""


@dataclass(frozen=True)
class Load:
    """The usual request: tokens of its prompt and of its answer."""

    prompt: float
    answer: float


def load_of(prompts: Prompts | None, speeds: Speeds) -> Load:
    """The mean of the requests to come, or what is assumed where nobody tells them."""
    if prompts is None:
        return Load(speeds.prompt_tokens, speeds.answer_tokens)
    answer = sum(each.share * each.output for each in prompts.kinds)
    return Load(prompts.mean - answer, max(1.0, answer))


@dataclass(frozen=True)
class Cost:
    """Rough. token: seconds of one token of an answer when the whole machine is busy, with its share of reading
    prompts. single: seconds between two tokens of the only request. exchange: share of `token` that cards exchange
    data. batch: requests at once on one replica."""

    token: float
    single: float
    exchange: float
    batch: int


@dataclass(frozen=True)
class _Stage:
    """What a step takes of one pipeline stage. read, experts: seconds to read its dense weights and all its experts.
    compute: seconds of calculation for a token; cache: of reading a request's KV cache. sums: seconds of a step's
    exchanges, whatever its batch; moved: for each token in it."""

    read: float
    experts: float
    compute: float
    cache: float
    sums: float
    moved: float

    def seconds(self, tokens: float, requests: float, touched: float) -> float:
        work = max(self.read + self.experts * touched, self.compute * tokens)
        return work + self.cache * requests + self.exchange(tokens)

    def exchange(self, tokens: float) -> float:
        return self.sums + self.moved * tokens


def cost_of(
    architecture: Architecture, hardware: Hardware, cards: Sequence[Card], layout: Layout, sizing: Sizing, load: Load
) -> Cost:
    """The cost of a layout.

    Parameters:
        cards: of all replicas, by rank. sizing: the memory of one replica.
    """
    speeds, stages, replicas = hardware.speeds, layout.pipeline_parallel, layout.replicas
    held = held_at_once(sizing, load.prompt + load.answer)
    batch = max(1, min(sizing.settings.max_num_seqs, int(held)))
    parts = _stages(architecture, hardware, cards, layout, sizing, load)
    hidden = architecture.hidden_size or 1
    tensor = layout.tensor_parallel
    hops = [link_between(hardware, cards[stage * tensor - 1], cards[stage * tensor]) for stage in range(1, stages)]
    hop = sum(each.seconds + hidden * BYTES / (each.gb_s * 1e9) for each in hops)
    single = sum(each.seconds(1, 1, _touched(architecture, 1)) for each in parts) + hop
    # Each stage works on its share of the batch while the others work on theirs.
    share = max(1.0, batch / stages)
    rounds = stages / min(stages, batch)
    # Experts that data-parallel ranks share work for the tokens of all of them, and the ranks go step by step together.
    touched = _touched(architecture, share * replicas)
    answering = max(each.seconds(share, share, touched) for each in parts) * rounds / share
    chunk = float(max(1, sizing.settings.max_num_batched_tokens))
    reading = max(each.seconds(chunk, 0, _touched(architecture, chunk)) for each in parts) / chunk
    per_answer = load.prompt / load.answer
    waiting = stages - 1 + (replicas > 1 and touched < 1)
    bubbles = 1 + speeds.bubble * waiting
    token = (answering + per_answer * reading) * bubbles / replicas
    exchanging = max(
        each.exchange(share) / share * rounds + per_answer * each.exchange(chunk) / chunk for each in parts
    )
    return Cost(token, single, min(1.0, exchanging * bubbles / replicas / token), batch)


def _stages(
    architecture: Architecture, hardware: Hardware, cards: Sequence[Card], layout: Layout, sizing: Sizing, load: Load
) -> list[_Stage]:
    speeds, tensor, stages = hardware.speeds, layout.tensor_parallel, layout.pipeline_parallel
    layers, hidden = (architecture.layers or 1) / stages, architecture.hidden_size or 1
    dense, routed = _elements(architecture)
    experts = architecture.experts
    active = dense + (routed * experts.per_token / experts.count if experts and experts.count else routed)
    per_gpu, capacity = sizing.estimate.per_gpu, sizing.estimate.capacity
    held = [max(each.weights for each in per_gpu[at * tensor : (at + 1) * tensor]) for at in range(stages)]
    whole = sum(held) or 1
    # With experts that data-parallel ranks share, each rank has a part of them only, and works for all.
    part = routed / (dense * layout.replicas + routed) if layout.replicas > 1 and routed else routed / (dense + routed)
    context = load.prompt + load.answer / 2
    cache = 0.0
    if capacity is not None:
        cache = capacity.bytes_per_token * context + capacity.bytes_per_sequence
    found = []
    for at, weights in enumerate(held):
        group = cards[at * tensor : (at + 1) * tensor]
        bandwidth = min(_bandwidth(each, speeds) for each in group) * speeds.read_share
        peak = min(_peak(each, speeds) for each in group) * speeds.compute_share
        read = weights / bandwidth
        sums, moved = _sums(slowest(hardware, group), tensor, SUMS_PER_LAYER * layers, hidden)
        if routed and layout.replicas > 1:
            link = slowest(hardware, cards)
            gathered, each_token = _sums(link, layout.replicas, layers, hidden)
            sums, moved = sums + SUMS_PER_LAYER * gathered, moved + each_token * layout.replicas
        found.append(
            _Stage(
                read=read * (1 - part),
                experts=read * part,
                compute=2 * active * weights / whole / tensor / peak,
                cache=cache / bandwidth,
                sums=sums,
                moved=moved,
            )
        )
    return found


def _sums(link: Link | None, ranks: int, count: float, hidden: int) -> tuple[float, float]:
    """Seconds that `count` sums over ranks take: whatever the batch, and for each token in it."""
    if link is None or ranks < 2:
        return 0.0, 0.0
    moved = count * hidden * BYTES * 2 * (ranks - 1) / ranks
    return count * link.seconds, moved / (link.gb_s * 1e9)


def exchanged_bytes(architecture: Architecture, ranks: int) -> int:
    """Bytes that each rank sends for one token under tensor parallelism."""
    layers, hidden = architecture.layers or 0, architecture.hidden_size or 0
    return int(SUMS_PER_LAYER * layers * hidden * BYTES * 2 * (ranks - 1) / ranks)


def _bandwidth(card: Card, speeds: Speeds) -> float:
    return ((card.model.bandwidth_gb_s if card.model is not None else None) or speeds.unknown_gb_s) * 1e9


def _peak(card: Card, speeds: Speeds) -> float:
    return ((card.model.fp16_tflops if card.model is not None else None) or speeds.unknown_tflops) * 1e12


def _elements(architecture: Architecture) -> tuple[int, int]:
    """Elements that a token is multiplied with, at most: of layers and head, and of routed experts."""
    dense = routed = 0
    for each in architecture.weights:
        if each.part != "language" or (each.kind == "embedding" and not architecture.tied_embeddings):
            continue
        if each.count > 1:
            routed += each.elements
        else:
            dense += each.elements
    return max(1, dense), routed


def _touched(architecture: Architecture, tokens: float) -> float:
    """Share of the experts that any of so many tokens is sent to, when all are as likely."""
    experts = architecture.experts
    if experts is None or not experts.count:
        return 1.0
    others: float = (1.0 - min(1.0, experts.per_token / experts.count)) ** tokens
    return 1.0 - others
