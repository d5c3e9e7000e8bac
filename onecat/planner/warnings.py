"""What a person should know of a plan that the engine would not refuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onecat.facts import Facts
from onecat.planner.capabilities import told
from onecat.planner.changes import told_layout
from onecat.planner.hardware import GIB
from onecat.planner.layouts import Candidate, candidate, is_better
from onecat.planner.records import Layout
from onecat.planner.refusals import Situation
from onecat.planner.refusals.memory import offload_cost
from onecat.planner.sizing import why_unknown

LEAST_WEIGHTS = GIB
"""Of a model whose layout is worth a word: smaller ones are for trying out."""


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


def warnings_of(at: Situation, facts: Facts | None, compared: Sequence[Candidate]) -> tuple[str, ...]:
    """All of them. compared: layouts, the best first."""
    weights = at.checkpoint.weight_bytes
    warnings = [
        *memory_warnings(at),
        *layout_warnings(at, compared),
        *shorter_warnings(at, compared),
        *mixture_warnings(at, compared),
        *engine_warnings(at),
    ]
    if at.schema.unknown is not None:
        warnings.append(
            f"The flags of {at.schema.family} {at.schema.version} are not known to this onecat and were not checked: "
            f"{at.schema.unknown}."
        )
    statistics = at.settings.get("disable-log-stats")
    if statistics is not None and statistics.value is True:
        warnings.append(
            f"disable-log-stats ({statistics.where}) stops the engine's statistics, which canary, top and preflight "
            "read. Leave it out; explained in: onecat explain serving.statistics"
        )
    stored, used = at.checkpoint.architecture.dtype, at.value("dtype")
    if stored in ("bfloat16", "float16") and used in ("float32", "float"):
        warnings.append(
            f"In float32 the {stored} weights take {_size(2 * weights)} of memory, twice their size on disk."
        )
    warnings += [*_overflow(at), *_unseen_quantization(at)]
    hardware = at.profile.hardware
    names = {each.name for each in facts.nvidia.gpus} if facts is not None and facts.nvidia else set()
    others = sorted(names - set(hardware.gpu_names))
    if hardware.accelerator == "nvidia" and others:
        warnings.append(
            f"Profile {at.profile.name} is for {', '.join(hardware.gpu_names)}; the host has {', '.join(others)}."
        )
    needed = at.layout.cards
    if at.gpus is None and hardware.count and needed > hardware.count:
        warnings.append(
            f"The layout needs {needed} GPUs; profile {at.profile.name} is for hosts with {hardware.count}."
        )
    if hardware.accelerator == "none" and at.layout.cards > 1:
        warnings.append(
            f"The {at.layout.cards} ranks share this host's processors and memory: each has its part of the weights "
            "and a KV cache of its own of VLLM_CPU_KVCACHE_SPACE. They are faster than one only on NUMA nodes of their "
            "own."
        )
    return tuple(warnings)


def _overflow(at: Situation) -> Iterator[str]:
    """Models of a family whose values overflow in float16, where the engine takes float16 all the same."""
    kind = at.checkpoint.architecture.model_type or ""
    used = None if at.sizing is None else at.sizing.settings.dtype
    if used == "float16" and kind.startswith("gemma") and at.checkpoint.architecture.dtype == "bfloat16":
        yield (
            "Gemma models are trained in bfloat16, and values of Gemma 2 and 3 overflow in float16, which the engine "
            f"refuses for them; it does not for {kind}. Compare some answers with those of a card that has bfloat16."
        )


def _unseen_quantization(at: Situation) -> Iterator[str]:
    """Publishers state the scheme in a file of its own, which is easily left behind."""
    if not at.checkpoint.measured and at.checkpoint.quantization is None:
        yield (
            "Only the configuration was read, and it names no quantisation: the weights are counted in "
            f"{at.checkpoint.architecture.dtype or 'their own type'}. If hf_quant_config.json or quant_config.json "
            "comes with the checkpoint, put it beside config.json."
        )


def memory_warnings(at: Situation) -> Iterator[str]:
    """What is to be known of the memory: estimates, close calls, other processes, a host without room."""
    weights = at.checkpoint.weight_bytes
    if at.sizing is None:
        why = why_unknown(at.question, at.layout)
        yield f"Whether the model fits is not known: {why}. The weights are {_size(weights)} on disk."
        return
    sizing = at.sizing
    for why in sizing.estimate.estimated:
        yield f"The sizes are estimated, and nothing is refused for them: {why}."
    if not sizing.fits and sizing.estimate.estimated:
        yield (
            f"By the estimate the model does not fit: {sizing.short_of / GIB:.1f} GiB are missing; the longest context "
            f"would be {sizing.largest} tokens."
        )
    if sizing.asked is None and sizing.possible is not None and 0 < sizing.largest < sizing.possible:
        yield (
            f"The longest context that fits is {sizing.largest} tokens, of {sizing.possible} that the checkpoint "
            "allows; the engine takes what it finds at its start."
        )
    cost = offload_cost(at)
    if cost is not None:
        yield f"cpu-offload-gb: {cost}."
    yield from _others(at)
    if at.question.hardware.platform == "cpu" and at.question.hardware.host_memory is not None:
        taken = sum(each.weights + max(0, each.kv_cache) + each.activations for each in sizing.estimate.per_gpu)
        if taken > at.question.hardware.host_memory:
            yield (
                f"Weights and KV cache take {_size(taken)}, and processes of this host may use "
                f"{_size(at.question.hardware.host_memory)}: the server would be ended while it starts."
            )


def _others(at: Situation) -> Iterator[str]:
    """The engine does not start where less is free than its share. Source: vllm/v1/worker/utils.py (request_memory)."""
    assert at.sizing is not None
    for card, each in zip(at.sizing.cards, at.sizing.estimate.per_gpu, strict=False):
        free = card.memory - card.used
        if card.used and each.budget > free:
            share = max(0.05, int(100 * free / card.memory - 1) / 100)
            yield (
                f"GPU {card.index}: other processes use {_size(card.used)}, and the engine, which wants "
                f"{_size(each.budget)} of the {_size(card.memory)}, does not start while less is free. End them, "
                f"choose other cards (gpus in onecat.yaml), or write gpu-memory-utilization: {share:.2f}."
            )


def shorter_warnings(at: Situation, compared: Sequence[Candidate]) -> Iterator[str]:
    """A layout with a shorter context that would cost less: the whole one, which is planned for, may be too much."""
    best = compared[0] if compared else None
    if best is None or best.layout != at.layout or best.holds != "whole":
        return
    close = at.question.hardware.speeds.close
    cheaper = [
        each
        for each in compared
        if each.holds == "shorter" and each.cost.token * (1 + close) < best.cost.token and each.sizing.largest >= 1024
    ]
    found = min(cheaper, key=lambda each: each.cost.token, default=None)
    if found is not None and sum(each.weights for each in found.sizing.estimate.per_gpu) >= LEAST_WEIGHTS:
        yield (
            f"Planned for {best.wanted.told}. If a shorter context is enough, max-model-len: {found.sizing.largest} "
            f"with {told_layout(found.layout, found.experts_whole)} would cost about "
            f"{1 - found.cost.token / best.cost.token:.0%} less time per token when many requests run (rough)."
        )


def mixture_warnings(at: Situation, compared: Sequence[Candidate]) -> Iterator[str]:
    """A mixture that fits one card: data-parallel ranks share its experts, and only servers of their own are copies."""
    own = next((each for each in compared if each.layout == at.layout), None)
    if own is None or not any(each.count > 1 for each in at.checkpoint.architecture.weights):
        return
    count = len(own.cards)
    alone = candidate(at.question, Layout()) if count > 1 else None
    if alone is None or alone.holds != "whole":
        return
    close = at.question.hardware.speeds.close
    if alone.cost.token / count * (1 + close) < own.cost.token:
        yield (
            f"One card holds this mixture with {alone.wanted.told}. Of a mixture data-parallel ranks are no copies: "
            f"they share its experts, and exchange data for each layer. {count} deployments of one card each (gpus in "
            f"onecat.yaml) exchange nothing, and would cost about {1 - alone.cost.token / count / own.cost.token:.0%} "
            "less time per token when many requests run (rough)."
        )


def layout_warnings(at: Situation, compared: Sequence[Candidate]) -> Iterator[str]:
    """A layout that somebody else chose and that another one beats."""
    own = next((each for each in compared if each.layout == at.layout), None)
    best = compared[0] if compared else None
    if best is None or own is best:
        return
    chosen = {
        at.settings[name].layer for name in ("tensor-parallel-size", "pipeline-parallel-size") if name in at.settings
    }
    if own is None or not chosen <= {"profile"} or best.sizing.estimate.estimated:
        return
    if sum(each.weights for each in best.sizing.estimate.per_gpu) < LEAST_WEIGHTS:
        return
    close = at.question.hardware.speeds.close
    if best.holds != own.holds and is_better(best, own):
        yield (
            f"The profile's layout stands. It does not hold {best.wanted.told}; with "
            f"{told_layout(best.layout, best.experts_whole)} (under serve) it does: {best.why}."
        )
    elif is_better(best, own) and own.cost.token > best.cost.token * (1 + close):
        yield (
            f"The profile's layout stands. For this model "
            f"{told_layout(best.layout, best.experts_whole)} (under serve) would cost about "
            f"{1 - best.cost.token / own.cost.token:.0%} less time per token when many requests run: {best.why}. These "
            "figures are rough."
        )


OFFICIAL_CAPABILITY = 75
OFFICIAL_SINCE = (0, 20)
"""From 0.20.0 on vLLM's own images and wheels are built for compute capability 7.5 and newer, with CUDA 13.
https://github.com/vllm-project/vllm/pull/39878"""


def engine_warnings(at: Situation) -> Iterator[str]:
    """The makers' own builds of vLLM hold no code for old cards."""
    if at.profile.engine.name != "vllm" or at.capability is None or at.capability >= OFFICIAL_CAPABILITY:
        return
    version = at.profile.engine.version
    if tuple(int(each) for each in version.split(".")[:2] if each.isdigit()) >= OFFICIAL_SINCE:
        yield (
            f"vLLM's own image and wheels of {version} hold no code for compute capability {told(at.capability)}: this "
            "is for a build from source with CUDA 12.6, as onecat's engine vllm-patched is."
        )
