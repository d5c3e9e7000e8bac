"""A rough relative cost of a token: for ranking layouts, not for predicting speed. Pure.

A decoding step reads the weights that it needs once, whatever the batch; each layer under tensor parallelism sums the
hidden state over its ranks twice (after attention and after the feed-forward network), each stage passes it on once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onecat.checkpoints import Architecture
from onecat.planner.hardware import Card, Hardware
from onecat.planner.memory import Estimate
from onecat.planner.records import Layout
from onecat.planner.topology import Link, link_between, slowest

SUMS_PER_LAYER = 2
"""Megatron's division of a layer: one all-reduce after attention, one after the MLP. https://arxiv.org/abs/1909.08053"""

BYTES = 2
"""Of one element of the hidden state."""

UNKNOWN_BANDWIDTH = 300.0
BATCH = 32
"""Requests at once for which layouts are compared, where that many fit."""

USUAL_TOKENS = 2048
"""Of a request with its answer, for that."""

PROMPT_TOKENS = 7
"""For each token of an answer, tokens of prompts that are read meanwhile: 1792 of 2048. What they cost beside the
exchange between cards is the same work whatever the layout, and left out."""


@dataclass(frozen=True)
class Cost:
    """All in seconds, rough. token: of one token when the whole machine is busy. single: between two tokens of the only
    request. weights, exchange: what reading weights and exchanging between cards take of `single`. batch: requests at
    once on one replica that this is for."""

    token: float
    single: float
    weights: float
    exchange: float
    batch: int


def cost_of(
    architecture: Architecture, hardware: Hardware, cards: Sequence[Card], layout: Layout, found: Estimate
) -> Cost:
    """The cost of a layout.

    Parameters:
        cards: of one replica, by rank. found: its memory.
    """
    tensor, stages = layout.tensor_parallel, layout.pipeline_parallel
    layers, hidden = architecture.layers or 1, architecture.hidden_size or 1
    tokens = found.capacity.tokens if found.capacity is not None else 0
    batch = max(1, min(BATCH, tokens // USUAL_TOKENS))
    active = _active_share(architecture)
    by_stage = []
    for stage in range(stages):
        group = cards[stage * tensor : (stage + 1) * tensor]
        weights = max(each.weights for each in found.per_gpu[stage * tensor : (stage + 1) * tensor])
        read = max(weights, 1) / (min(_bandwidth(each) for each in group) * 1e9)
        link = slowest(hardware, group)
        small, each_token = _sums(link, tensor, layers / stages, hidden)
        by_stage.append((read, small, each_token))
    hops = [link_between(hardware, cards[stage * tensor - 1], cards[stage * tensor]) for stage in range(1, stages)]
    hop = sum(each.seconds + hidden * BYTES / (each.gb_s * 1e9) for each in hops)
    exchange = sum(small + each_token for _, small, each_token in by_stage) + hop
    read_single = sum(read * active for read, _, _ in by_stage)
    single = read_single + exchange
    # Each stage works on its share of the batch while the others work on theirs.
    share = max(1, batch // stages)
    busiest = max(read * min(1.0, active * share) + small + each_token * share for read, small, each_token in by_stage)
    rounds = stages if batch < stages else 1
    reading = PROMPT_TOKENS * max(each_token for _, _, each_token in by_stage)
    token = (busiest * rounds / share + reading) / layout.replicas
    return Cost(token, single, read_single, exchange, batch)


def _sums(link: Link | None, ranks: int, layers: float, hidden: int) -> tuple[float, float]:
    """Seconds that the sums of a step take: whatever the batch, and for each token in it."""
    if link is None:
        return 0.0, 0.0
    moved = SUMS_PER_LAYER * layers * hidden * BYTES * 2 * (ranks - 1) / ranks
    return SUMS_PER_LAYER * layers * link.seconds, moved / (link.gb_s * 1e9)


def exchanged_bytes(architecture: Architecture, ranks: int) -> int:
    """Bytes that each rank sends for one token under tensor parallelism."""
    layers, hidden = architecture.layers or 0, architecture.hidden_size or 0
    return int(SUMS_PER_LAYER * layers * hidden * BYTES * 2 * (ranks - 1) / ranks)


def _bandwidth(card: Card) -> float:
    return (card.model.bandwidth_gb_s if card.model is not None else None) or UNKNOWN_BANDWIDTH


def _active_share(architecture: Architecture) -> float:
    """Of the weights, those that one token reads: all but the experts that it is not sent to."""
    experts = architecture.experts
    if experts is None or not experts.count:
        return 1.0
    routed = sum(each.elements for each in architecture.weights if each.count > 1)
    whole = sum(each.elements for each in architecture.weights) or 1
    return (whole - routed * (1 - experts.per_token / experts.count)) / whole
