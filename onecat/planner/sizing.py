"""What a layout takes of its cards, and the longest context that fits: the memory model asked for a question. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from onecat.planner.hardware import GIB, Card, Hardware
from onecat.planner.memory import Device, Estimate, MemorySettings, estimate, seen_by_engine
from onecat.planner.memory_flags import kv_cache_bytes, memory_settings
from onecat.planner.questions import Question, doubts, offloaded_bytes
from onecat.planner.records import Layout

AUTO_LENGTHS = ("auto", -1, "-1")
SHORTEST = 16
"""Tokens of the shortest context that counts as serving: one block."""


@dataclass(frozen=True)
class Sizing:
    """The memory of one replica.

    length: tokens of a context that this is for; asked: what was asked for, None where the engine takes what fits.
    possible: tokens of the longest context that the checkpoint allows. largest: the longest that fits, at most that.
    cards: by rank, as the devices of the estimate. memory_known: whether the devices' memory is that of real ones: a KV
    cache of a given size can be asked about without.
    """

    settings: MemorySettings
    estimate: Estimate
    length: int
    asked: int | None
    possible: int | None
    largest: int
    cards: tuple[Card, ...] = ()
    memory_known: bool = True

    @property
    def fits(self) -> bool:
        """Whether one request of the asked length is served; where none was asked, whether any is."""
        return self.estimate.fits and self.largest >= min(SHORTEST, self.length)

    @property
    def short_of(self) -> int:
        """Bytes per GPU that are missing."""
        return self.estimate.short_of


def why_unknown(question: Question, layout: Layout) -> str | None:
    """Why it cannot be computed what fits; None when it can."""
    architecture = question.checkpoint.architecture
    if not architecture.layers or not architecture.hidden_size or not (architecture.weights or architecture.caches):
        return "the checkpoint has no config.json that tells its layers"
    if question.hardware.platform == "cpu":
        return None if _cpu_memory(question) else "how much memory the host has is not known"
    if not question.hardware.cards:
        return "how much memory the cards have is not known"
    if layout.pipeline_parallel > architecture.layers:
        return f"{architecture.layers} layers cannot be divided among {layout.pipeline_parallel} stages"
    return None


def size(question: Question, layout: Layout) -> Sizing | None:
    """What one replica takes of its cards; None where `why_unknown` says why.

    More cards than there are count as further ones like the last: a layout that needs them is refused elsewhere.
    """
    if why_unknown(question, layout) is not None:
        return None
    cards = _cards(question.hardware, layout.ranks)
    devices = _devices(question, cards, layout)
    possible = question.checkpoint.architecture.max_position_embeddings
    stated = question.value("max-model-len")
    asked = None if stated in AUTO_LENGTHS else question.count("max-model-len") or possible
    length = asked or possible or 2048
    first = _devices(question, _cards(question.hardware, 1), Layout())[0]
    settings = memory_settings(question, layout, length, first)
    found = _estimate(question, devices, settings)
    largest = largest_length(question, devices, settings, found, possible or length)
    if asked is None and not found.fits and largest >= SHORTEST:
        length = largest
        settings = memory_settings(question, layout, length, first)
        found = _estimate(question, devices, settings)
    found = replace(found, estimated=(*found.estimated, *doubts(question)))
    known = question.hardware.platform != "cpu" or question.hardware.host_memory is not None
    return Sizing(settings, found, length, asked, possible, largest, cards, known)


def largest_length(
    question: Question, devices: Sequence[Device], settings: MemorySettings, found: Estimate, possible: int
) -> int:
    """Tokens of the longest context that fits, at most `possible`; 0 when none does.

    The estimate answers up to the length that it was made for; above, it is asked again.
    """
    capacity = found.capacity
    if capacity is None:
        return 0
    if not found.fits or settings.max_model_len >= possible:
        return min(capacity.largest_max_model_len, possible)
    longer = replace(settings, max_model_len=possible)
    again = _estimate(question, devices, longer).capacity
    return 0 if again is None else max(settings.max_model_len, min(again.largest_max_model_len, possible))


def held_at_once(sizing: Sizing, tokens: float) -> float:
    """How many requests of `tokens` the KV cache holds at once, states and windows of each counted.

    The engine tells its size as requests of max_model_len times that length, which says too much of shorter ones where
    a request takes memory whatever its length.
    """
    capacity = sizing.estimate.capacity
    if capacity is None:
        return 0.0
    length = sizing.settings.max_model_len
    pool = capacity.max_concurrency * (length * capacity.bytes_per_token + capacity.bytes_per_sequence)
    each = tokens * capacity.bytes_per_token + capacity.bytes_per_sequence
    return pool / each if each else 0.0


def _estimate(question: Question, devices: Sequence[Device], settings: MemorySettings) -> Estimate:
    """The memory model's answer, with weights that are offloaded left out of the cards."""
    offloaded = offloaded_bytes(question)
    if not offloaded:
        return estimate(question.checkpoint, devices, settings)
    held = [each.weights for each in estimate(question.checkpoint, devices, settings).per_gpu]
    away = [min(offloaded, weights) for weights in held]
    wider = [
        replace(device, memory=device.memory + math.ceil(bytes_away / settings.utilization))
        for device, bytes_away in zip(devices, away, strict=False)
    ]
    found = estimate(question.checkpoint, wider, settings)
    per_gpu = tuple(
        replace(each, memory=device.memory, budget=each.budget - bytes_away, weights=each.weights - bytes_away)
        for each, device, bytes_away in zip(found.per_gpu, devices, away, strict=False)
    )
    return replace(found, per_gpu=per_gpu)


def _cards(hardware: Hardware, count: int) -> tuple[Card, ...]:
    found = hardware.taking(count)
    return found + (found[-1],) * (count - len(found)) if found else ()


def _devices(question: Question, cards: Sequence[Card], layout: Layout) -> list[Device]:
    if question.hardware.platform == "cpu":
        return [Device(None, (_cpu_memory(question) or 0) // layout.ranks)] * layout.ranks
    return [
        Device(each.name, seen_by_engine(each.memory, each.capability), each.used, each.capability) for each in cards
    ]


def _cpu_memory(question: Question) -> int | None:
    """Memory of the host; where it is not known, what weights and the given KV cache take says all that there is."""
    if question.hardware.host_memory is not None:
        return question.hardware.host_memory
    given = kv_cache_bytes(question)
    if given is None:
        return None
    # Only the KV cache's size decides then.
    return math.ceil(64 * GIB + 4 * question.checkpoint.weight_bytes + given)
