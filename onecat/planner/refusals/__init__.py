"""What the engine is known to refuse, found before it is started.

Each rule takes the `Situation` and yields refusals; `RULES` lists them. A rule that lacks a fact stays silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onecat.planner.records import Refusal
from onecat.planner.refusals import ascend, checkpoint, context, dtype, kv_cache, layout, quantization
from onecat.planner.refusals.situation import Situation, longest_context

__all__ = ["RULES", "Situation", "longest_context", "refusals"]

Rule = Callable[[Situation], Iterator[Refusal]]

RULES: tuple[Rule, ...] = (
    checkpoint.checkpoint,
    context.length,
    context.ranges,
    layout.sizes,
    layout.heads,
    layout.gpus,
    layout.npus,
    ascend.fp8_on_ascend,
    dtype.bfloat16,
    dtype.float16,
    kv_cache.kv_cache_dtype,
    quantization.quantization,
)


def refusals(situation: Situation) -> tuple[Refusal, ...]:
    """Everything the engine would refuse."""
    return tuple(refusal for rule in RULES for refusal in rule(situation))
