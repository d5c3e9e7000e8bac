"""The data types that cards and models refuse."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation, told

BFLOAT16_CAPABILITY = 80
"""Least compute capability, ten times, for bfloat16 (vllm platforms/cuda.py:232)."""


def bfloat16(at: Situation) -> Iterator[Refusal]:
    if at.capability is None or at.capability >= BFLOAT16_CAPABILITY:
        return
    for name in ("dtype", "kv-cache-dtype"):
        if at.value(name) == "bfloat16":
            yield Refusal(
                f"{name}-bfloat16",
                f"{name} bfloat16 needs compute capability 8.0; the card has {told(at.capability)}",
                (f"{name}: float16",),
            )


def float16(at: Situation) -> Iterator[Refusal]:
    kind = at.checkpoint.architecture.model_type
    if kind in at.schema.float16_refused and at.value("dtype") in ("float16", "half"):
        better = "float32" if (at.capability or BFLOAT16_CAPABILITY) < BFLOAT16_CAPABILITY else "bfloat16"
        yield Refusal(
            "dtype-float16",
            f"the engine refuses float16 for model type {kind}: its values overflow",
            (f"dtype: {better}",),
        )
