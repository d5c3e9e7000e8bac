"""The nearest changes that make a model fit: each is tried on the memory model, and told with what it yields. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from onecat.knowledge.hardware import gpu_models
from onecat.knowledge.pcie import pcie_generation
from onecat.planner.hardware import GIB, MIB, Card
from onecat.planner.layouts import ranked
from onecat.planner.parts import undivided
from onecat.planner.records import Layout
from onecat.planner.sizing import CPU_KV_VARIABLE, Question, Sizing, offloaded_bytes, size, with_flags

FEWER_SEQS = (256, 64, 16, 8)
MORE_SHARE = 0.95
"""Above, what the engine takes outside of its budget has no room left on most cards."""

LEAST_USEFUL = 256
"""Tokens of context below which a shorter context is no advice."""

FP8_KV_CAPABILITY = 89
MOST_TOLD = 4


@dataclass(frozen=True)
class Change:
    """One change. step: for a person, as it stands under serve. largest: tokens of context that fit then."""

    step: str
    largest: int


def nearest_changes(question: Question, layout: Layout, sizing: Sizing) -> tuple[Change, ...]:
    """Changes after which the asked context fits, the smallest first; a few at most."""
    found: list[Change] = []
    for change in _changes(question, layout, sizing):
        found.append(change)
        if len(found) == MOST_TOLD:
            break
    return tuple(found)


def _changes(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Change]:
    if sizing.largest >= LEAST_USEFUL:
        yield Change(f"max-model-len: {sizing.largest} (the longest context that fits)", sizing.largest)
    if question.hardware.platform == "cpu":
        yield from _more_space(question, layout, sizing)
        return
    yield from _fp8_cache(question, layout)
    yield from _smaller_batch(question, layout, sizing)
    yield from _eager(question, layout)
    yield from _more_share(question, layout)
    yield from _more_cards(question, layout)
    yield from _four_bits(question, layout, sizing)
    yield from _larger_card(question, layout)
    yield from _offload(question, layout, sizing)


def _fits(question: Question, layout: Layout) -> Sizing | None:
    found = size(question, layout)
    return found if found is not None and found.fits else None


def _fp8_cache(question: Question, layout: Layout) -> Iterator[Change]:
    able = question.capability is not None and question.capability >= FP8_KV_CAPABILITY
    if not able or str(question.value("kv-cache-dtype")) not in ("auto", "bfloat16", "float16"):
        return
    found = _fits(with_flags(question, kv_cache_dtype="fp8"), layout)
    if found is not None:
        yield Change("kv-cache-dtype: fp8 (half the memory per token, at some loss of accuracy)", found.largest)


def _smaller_batch(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Change]:
    for count in FEWER_SEQS:
        if count >= sizing.settings.max_num_seqs:
            continue
        tokens = max(count, min(sizing.settings.max_num_batched_tokens, 2048))
        found = _fits(with_flags(question, max_num_seqs=count, max_num_batched_tokens=tokens), layout)
        if found is not None:
            yield Change(f"max-num-seqs: {count} and max-num-batched-tokens: {tokens}", found.largest)
            return


def _eager(question: Question, layout: Layout) -> Iterator[Change]:
    if question.value("enforce-eager") is not True:
        found = _fits(with_flags(question, enforce_eager=True), layout)
        if found is not None:
            yield Change("enforce-eager: true (no memory for CUDA graphs; slower with few requests)", found.largest)


def _more_share(question: Question, layout: Layout) -> Iterator[Change]:
    share = question.value("gpu-memory-utilization")
    if isinstance(share, (int, float)) and share < MORE_SHARE:
        found = _fits(with_flags(question, gpu_memory_utilization=MORE_SHARE), layout)
        if found is not None:
            yield Change(f"gpu-memory-utilization: {MORE_SHARE}", found.largest)


def _more_cards(question: Question, layout: Layout) -> Iterator[Change]:
    """Another layout on the same host, else the fewest cards of the same kind that hold it."""
    used = layout.tensor_parallel * layout.pipeline_parallel
    best = next(iter(ranked(question)), None)
    if best is not None and best.sizing.fits and best.layout != layout:
        yield Change(told_layout(best.layout, best.experts_whole), best.sizing.largest)
        return
    hardware = question.hardware
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
            too_many = stages > (question.checkpoint.architecture.layers or 1)
            if tensor < 1 or too_many or undivided(question, Layout(tensor)):
                continue
            found = _fits(wider, Layout(tensor, stages))
            if found is not None:
                yield Change(f"{count} such cards: {told_layout(Layout(tensor, stages))}", found.largest)
                return


def told_layout(layout: Layout, experts_whole: bool = False) -> str:
    """The flags of a layout, as under serve."""
    parts = [f"tensor-parallel-size: {layout.tensor_parallel}"]
    if layout.pipeline_parallel > 1:
        parts.append(f"pipeline-parallel-size: {layout.pipeline_parallel}")
    if layout.replicas > 1:
        parts.append(f"data-parallel-size: {layout.replicas}")
    if experts_whole:
        parts.append("enable-expert-parallel: true")
    return ", ".join(parts)


def _four_bits(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Change]:
    """A checkpoint of the same model with 4-bit weights: 4.5 bits each, with scales for 16 or 32 together."""
    if question.checkpoint.quantization is not None:
        return
    held = [each.weights for each in sizing.estimate.per_gpu]
    bits = {"float32": 32}.get(sizing.settings.dtype, 16)
    saved = int(min(held, default=0) * (1 - 4.5 / bits) * 0.9)
    cards = tuple(
        replace(each, memory=each.memory + math.ceil(saved / sizing.settings.utilization))
        for each in question.hardware.cards
    )
    found = _fits(replace(question, hardware=replace(question.hardware, cards=cards)), layout)
    if found is not None:
        told = "a checkpoint of the model with 4-bit weights (AWQ, NVFP4, GPTQ) that engine and card take"
        yield Change(f"{told}: about {saved / GIB:.1f} GiB less on each card", found.largest)


def _larger_card(question: Question, layout: Layout) -> Iterator[Change]:
    """The smallest card of the table on which it fits in the same number."""
    current = max((each.memory for each in question.hardware.cards), default=0)
    if not current:
        return
    count = layout.tensor_parallel * layout.pipeline_parallel
    tried: set[int] = set()
    for model in sorted(gpu_models(), key=lambda each: each.memory_mib or 0):
        memory = (model.memory_mib or 0) * MIB
        if memory <= current * 1.05 or memory in tried or model.capability < (question.capability or 0):
            continue
        tried.add(memory)
        cards = tuple(Card(index, model.name, memory, 0, model.capability, model) for index in range(count))
        wider = replace(question, hardware=replace(question.hardware, cards=cards), capability=model.capability)
        found = _fits(wider, layout)
        if found is not None:
            yield Change(f"a card with {memory / GIB:.0f} GiB or more, as {model.name}", found.largest)
            return


def _offload(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Change]:
    if offloaded_bytes(question) or question.schema.flag("cpu-offload-gb", 1) is None:
        return
    missing = math.ceil(sizing.short_of / GIB)
    held = max((each.weights for each in sizing.estimate.per_gpu), default=0)
    if not missing or missing * GIB > held:
        return
    found = _fits(with_flags(question, cpu_offload_gb=missing), layout)
    if found is not None:
        yield Change(
            f"as a last resort cpu-offload-gb: {missing}: {told_offload(question, missing * GIB)}", found.largest
        )


def told_offload(question: Question, count: int) -> str:
    """What weights in the host's memory cost: they cross the bus for each step of the engine."""
    pcie = next((each.pcie for each in question.hardware.cards if each.pcie is not None), (3, 16))
    row = pcie_generation(pcie[0])
    rate = row.gigabytes_per_second(pcie[1]) if row is not None else 16.0
    seconds = count / (rate * 1e9)
    return (
        f"{count / GIB:.1f} GiB per card cross PCIe {pcie[0]}.0 x{pcie[1]} ({rate:.1f} GB/s) for every token of a "
        f"single request, which alone takes {seconds:.2f} s"
    )


def _more_space(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Change]:
    """On a CPU the KV cache has a size of its own."""
    given = sizing.settings.kv_cache_bytes
    if given is None:
        return
    wanted = math.ceil((given + sizing.short_of) / GIB)
    wider = replace(question, environment={**question.environment, CPU_KV_VARIABLE: str(wanted)})
    found = _fits(wider, layout)
    if found is not None:
        yield Change(f'env: {{{CPU_KV_VARIABLE}: "{wanted}"}}', found.largest)
