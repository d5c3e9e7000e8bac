"""What the engine is known to refuse, found before it is started.

Each rule takes the `Situation` and yields refusals; `RULES` lists them. A rule that lacks a fact stays silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onecat.planner.records import Refusal
from onecat.planner.refusals import (
    age,
    ascend,
    checkpoint,
    context,
    dtype,
    experts,
    kv_cache,
    layout,
    memory,
    quantization,
)
from onecat.planner.refusals.situation import Situation, longest_context

__all__ = ["IMPOSSIBLE", "MEMORY_RULES", "RULES", "Situation", "longest_context", "refusals"]

Rule = Callable[[Situation], Iterator[Refusal]]

RULES: tuple[Rule, ...] = (
    checkpoint.checkpoint,
    context.length,
    context.ranges,
    layout.sizes,
    layout.parts,
    layout.gpus,
    layout.npus,
    ascend.fp8_on_ascend,
    dtype.bfloat16,
    dtype.float16,
    kv_cache.kv_cache_dtype,
    quantization.quantization,
    experts.experts,
    experts.experts_on_processors,
    experts.latent_attention,
    experts.sparse_attention,
    age.engine_age,
    age.removed,
)

MEMORY_RULES: tuple[Rule, ...] = (memory.memory,)
"""Asked where the layout and the context are ones that there can be: sizes of others mean nothing."""

IMPOSSIBLE = frozenset(
    (
        *("max-model-len", "gpu-memory-utilization", "layout", "not-enough-gpus", "not-enough-npus"),
        *("tensor-parallel-heads", "tensor-parallel-blocks"),
    )
)
"""Codes of layouts and contexts that there cannot be: such a plan does not fit, whatever its sizes come to."""

WITHOUT_SIZES = IMPOSSIBLE | {"engine-too-old", "architecture-removed"}
"""Codes beside which a shortage of memory says nothing."""


def refusals(situation: Situation) -> tuple[Refusal, ...]:
    """Everything the engine would refuse."""
    found = tuple(refusal for rule in RULES for refusal in rule(situation))
    if any(each.code in WITHOUT_SIZES for each in found):
        return found
    return found + tuple(refusal for rule in MEMORY_RULES for refusal in rule(situation))
