"""Flags that save memory, of the KV cache, the batch or CUDA graphs, or let the engine have more of it."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.planner.capabilities import FP8_KV_CAPABILITY
from onecat.planner.changes.records import Attempt
from onecat.planner.flags import FlagValue, shown
from onecat.planner.questions import Question, with_flags
from onecat.planner.records import Layout
from onecat.planner.sizing import Sizing

FEWER_SEQS = (256, 64, 16, 8)
MORE_SHARE = 0.95
"""Above, what the engine takes outside of its budget has no room left on most cards."""


def fp8_cache(question: Question, layout: Layout) -> Iterator[Attempt]:
    if _can_have_fp8_cache(question):
        told = "kv-cache-dtype: fp8 (half the memory per token, at some loss of accuracy)"
        yield Attempt(told, with_flags(question, kv_cache_dtype="fp8"), layout)


def _can_have_fp8_cache(question: Question) -> bool:
    able = question.capability is not None and question.capability >= FP8_KV_CAPABILITY
    return able and str(question.value("kv-cache-dtype")) in ("auto", "bfloat16", "float16")


def smaller_batch(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Attempt]:
    for count in FEWER_SEQS:
        if count < sizing.settings.max_num_seqs:
            tokens = max(count, min(sizing.settings.max_num_batched_tokens, 2048))
            fewer = with_flags(question, max_num_seqs=count, max_num_batched_tokens=tokens)
            yield Attempt(f"max-num-seqs: {count} and max-num-batched-tokens: {tokens}", fewer, layout)


def eager(question: Question, layout: Layout) -> Iterator[Attempt]:
    if question.value("enforce-eager") is not True:
        told = "enforce-eager: true (no memory for CUDA graphs; slower with few requests)"
        yield Attempt(told, with_flags(question, enforce_eager=True), layout)


def more_share(question: Question, layout: Layout) -> Iterator[Attempt]:
    share = question.value("gpu-memory-utilization")
    if isinstance(share, (int, float)) and share < MORE_SHARE:
        told = f"gpu-memory-utilization: {MORE_SHARE}"
        yield Attempt(told, with_flags(question, gpu_memory_utilization=MORE_SHARE), layout)


def all_flags(question: Question, layout: Layout, sizing: Sizing) -> Iterator[Attempt]:
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
