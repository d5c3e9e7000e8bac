"""The nearest changes that make a model fit: each is tried on the memory model, and told with what it yields. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onecat.checkpoints import read_quantization
from onecat.engines import least_capability
from onecat.knowledge.hardware import gpu_models
from onecat.knowledge.pcie import pcie_generation
from onecat.planner.flags import FlagValue, shown
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

LEAST_SERVED = 2048
"""Tokens of context below which a change that still leaves the context short is no advice."""

FP8_KV_CAPABILITY = 89
MOST_TOLD = 5
FOUR_BITS = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}


@dataclass(frozen=True)
class Change:
    """One change. step: for a person, as it stands under serve. largest: tokens of context that fit then."""

    step: str
    largest: int


@dataclass(frozen=True)
class Attempt:
    """What is tried on the memory model. told: the change in words."""

    told: str
    question: Question
    layout: Layout


def nearest_changes(question: Question, layout: Layout, sizing: Sizing) -> tuple[Change, ...]:
    """Changes after which the asked context fits: of flags and layout, then of the checkpoint, then of the cards.

    Where the model is not served at all, also changes with which a shorter context fits. A few at most.
    """
    found: list[Change] = []
    if sizing.largest >= LEAST_USEFUL:
        found.append(Change(f"max-model-len: {sizing.largest} (the longest context that fits)", sizing.largest))
    if question.hardware.platform == "cpu":
        return (*found, *_more_space(question, layout, sizing))
    here = (
        _fp8_cache(question, layout),
        _smaller_batch(question, layout, sizing),
        _eager(question, layout),
        _more_share(question, layout),
        _all_flags(question, layout, sizing),
        _other_layout(question, layout),
        _four_bits(question, layout),
    )
    elsewhere = (_more_cards(question, layout), _larger_card(question, layout))
    for kinds in (here, elsewhere):
        if len(found) < MOST_TOLD:
            found += _tried(kinds, MOST_TOLD - len(found), with_shorter=sizing.largest < LEAST_USEFUL)
    if len(found) < MOST_TOLD:
        found += _offload(question, layout, sizing)
    return tuple(found)


def _tried(kinds: Sequence[Iterator[Attempt]], most: int, *, with_shorter: bool) -> list[Change]:
    """The first of each kind that fits, then those with which a shorter context does, the longest first."""
    whole: list[Change] = []
    shorter: list[Change] = []
    for attempts in kinds:
        best: Change | None = None
        for each in attempts:
            then = size(each.question, each.layout)
            if then is None:
                continue
            if then.fits:
                whole.append(Change(each.told, then.largest))
                best = None
                break
            if then.largest >= max(LEAST_SERVED, best.largest + 1 if best else 0):
                best = Change(f"{each.told}, with max-model-len: {then.largest}", then.largest)
        if best is not None and with_shorter:
            shorter.append(best)
        if len(whole) == most:
            break
    return (whole + sorted(shorter, key=lambda each: -each.largest))[:most]


def _fp8_cache(question: Question, layout: Layout) -> Iterator[Attempt]:
    if _can_have_fp8_cache(question):
        told = "kv-cache-dtype: fp8 (half the memory per token, at some loss of accuracy)"
        yield Attempt(told, with_flags(question, kv_cache_dtype="fp8"), layout)


def _can_have_fp8_cache(question: Question) -> bool:
    able = question.capability is not None and question.capability >= FP8_KV_CAPABILITY
    return able and str(question.value("kv-cache-dtype")) in ("auto", "bfloat16", "float16")


def _smaller_batch(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Attempt]:
    for count in FEWER_SEQS:
        if count < sizing.settings.max_num_seqs:
            tokens = max(count, min(sizing.settings.max_num_batched_tokens, 2048))
            fewer = with_flags(question, max_num_seqs=count, max_num_batched_tokens=tokens)
            yield Attempt(f"max-num-seqs: {count} and max-num-batched-tokens: {tokens}", fewer, layout)


def _eager(question: Question, layout: Layout) -> Iterator[Attempt]:
    if question.value("enforce-eager") is not True:
        told = "enforce-eager: true (no memory for CUDA graphs; slower with few requests)"
        yield Attempt(told, with_flags(question, enforce_eager=True), layout)


def _more_share(question: Question, layout: Layout) -> Iterator[Attempt]:
    share = question.value("gpu-memory-utilization")
    if isinstance(share, (int, float)) and share < MORE_SHARE:
        told = f"gpu-memory-utilization: {MORE_SHARE}"
        yield Attempt(told, with_flags(question, gpu_memory_utilization=MORE_SHARE), layout)


def _all_flags(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Attempt]:
    """Everything at once that flags can save."""
    count = min(FEWER_SEQS[-1], sizing.settings.max_num_seqs)
    tokens = min(2048, sizing.settings.max_num_batched_tokens)
    flags: dict[str, FlagValue] = {"max_num_seqs": count, "max_num_batched_tokens": tokens}
    share = question.value("gpu-memory-utilization")
    if isinstance(share, (int, float)) and share < MORE_SHARE:
        flags["gpu_memory_utilization"] = MORE_SHARE
    if question.value("enforce-eager") is not True:
        flags["enforce_eager"] = True
    if _can_have_fp8_cache(question):
        flags["kv_cache_dtype"] = "fp8"
    told = ", ".join(f"{name.replace('_', '-')}: {shown(value)}" for name, value in flags.items())
    yield Attempt(told, with_flags(question, **flags), layout)


def _other_layout(question: Question, layout: Layout) -> Iterator[Attempt]:
    best = next(iter(ranked(question)), None)
    if best is not None and best.holds != "none" and best.layout != layout:
        asked = with_flags(question, enable_expert_parallel=True) if best.experts_whole else question
        yield Attempt(told_layout(best.layout, best.experts_whole), asked, best.layout)


def _more_cards(question: Question, layout: Layout) -> Iterator[Attempt]:
    """The fewest cards of the same kind that hold it."""
    used = layout.tensor_parallel * layout.pipeline_parallel
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


def _four_bits(question: Question, layout: Layout) -> Iterator[Attempt]:
    """A checkpoint of the same model with 4-bit weights, here of AWQ: other methods take about as much."""
    least = least_capability(question.schema, "awq")
    if question.schema.unknown is not None or least is None or (question.capability or 0) < least:
        return
    stored = question.checkpoint
    smaller = replace(
        stored,
        quantization=read_quantization({"config.json": {"quantization_config": FOUR_BITS}}),
        tensors=(),
        files=(),
        measured=False,
    )
    asked = replace(question, checkpoint=smaller)
    then = size(asked, layout)
    now = size(question, layout)
    if then is None or now is None or undivided(asked, layout):
        return
    saved = min(
        one.weights - other.weights for one, other in zip(now.estimate.per_gpu, then.estimate.per_gpu, strict=True)
    )
    if saved > now.estimate.per_gpu[0].weights // 5:
        told = "a checkpoint of the model with 4-bit weights (AWQ, GPTQ, NVFP4)"
        yield Attempt(f"{told}: about {saved / GIB:.1f} GiB less on each card", asked, layout)


def _larger_card(question: Question, layout: Layout) -> Iterator[Attempt]:
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
        yield Attempt(f"a card with {memory / GIB:.0f} GiB or more, as {model.name}", wider, layout)


def _offload(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Change]:
    if offloaded_bytes(question) or question.schema.flag("cpu-offload-gb", 1) is None:
        return
    missing = math.ceil(sizing.short_of / GIB)
    held = max((each.weights for each in sizing.estimate.per_gpu), default=0)
    if not missing or missing * GIB > held:
        return
    found = size(with_flags(question, cpu_offload_gb=missing), layout)
    if found is not None and found.fits:
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
    found = size(wider, layout)
    if found is not None and found.fits:
        yield Change(f'env: {{{CPU_KV_VARIABLE}: "{wanted}"}}', found.largest)
