"""Weights that take less of the cards, in fewer bits or in the host's memory, and more of that for a CPU's KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from onecat.checkpoints import read_quantization
from onecat.engines import least_capability
from onecat.planner.changes.records import Attempt, Change
from onecat.planner.changes.words import told_offload
from onecat.planner.hardware import GIB
from onecat.planner.memory_flags import CPU_KV_VARIABLE
from onecat.planner.parts import undivided
from onecat.planner.questions import Question, offloaded_bytes, with_flags
from onecat.planner.records import Layout
from onecat.planner.sizing import Sizing, size

FOUR_BITS = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}


def four_bits(question: Question, layout: Layout) -> Iterator[Attempt]:
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


def offload(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Change]:
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


def more_space(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Change]:
    """On a CPU the KV cache has a size of its own."""
    given = sizing.settings.kv_cache_bytes
    if given is None:
        return
    wanted = math.ceil((given + sizing.short_of) / GIB)
    wider = replace(question, environment={**question.environment, CPU_KV_VARIABLE: str(wanted)})
    found = size(wider, layout)
    if found is not None and found.fits:
        yield Change(f'env: {{{CPU_KV_VARIABLE}: "{wanted}"}}', found.largest)
