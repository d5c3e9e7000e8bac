"""Whether the model fits, and the longest context with which it does."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onecat.planner.changes import nearest_changes, told_offload
from onecat.planner.hardware import GIB
from onecat.planner.questions import offloaded_bytes
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation
from onecat.planner.sizing import SHORTEST, Sizing

BLOCKS = "num-gpu-blocks-override"
EPSILON = 1e-6
"""Below what one block changes in the quotient of two counts of blocks."""

DOUBTFUL = 0.03
"""Share of a card's memory within which the estimate may be wrong: a shortage below it does not stop `up`."""


def memory(at: Situation) -> Iterator[Refusal]:
    """The model does not fit, or not with the context that was asked for. Silent where sizes are estimated."""
    sizing = at.sizing
    if sizing is None or sizing.fits or sizing.estimate.estimated:
        return
    if sizing.settings.blocks is not None:
        yield _given_blocks(at, sizing, sizing.settings.blocks)
        return
    smallest = min(each.memory for each in sizing.estimate.per_gpu)
    missing = sizing.short_of
    certain = missing > DOUBTFUL * smallest or sizing.settings.kv_cache_bytes is not None
    steps = tuple(each.step for each in nearest_changes(at.question, at.layout, sizing))
    card = "the host" if at.question.hardware.platform == "cpu" else "each card"
    tightest = min(sizing.estimate.per_gpu, key=lambda each: each.kv_cache)
    room = f"{max(0, tightest.kv_cache) / GIB:.2f} GiB are left for the KV cache"
    if sizing.largest >= SHORTEST:
        yield Refusal(
            "memory-context",
            f"max-model-len {sizing.length} does not fit: one request of that length needs {missing / GIB:.2f} GiB "
            f"more on {card}, {room}; the longest context that fits is {sizing.largest}",
            steps,
            certain,
        )
        return
    held = (
        f"the weights take {tightest.weights / GIB:.2f} of the {tightest.budget / GIB:.2f} GiB that the engine may use"
    )
    yield Refusal(
        "memory-weights",
        f"the model does not fit: {missing / GIB:.2f} GiB are missing on {card}; {held}",
        steps or ("take a smaller model, a checkpoint with fewer bits, or more cards",),
        certain,
    )


def _given_blocks(at: Situation, sizing: Sizing, blocks: int) -> Refusal:
    """Fewer blocks than a request needs, or more than the memory holds."""
    card = "the host" if at.question.hardware.platform == "cpu" else "each card"
    without = f"leave {BLOCKS} out: the engine takes what its memory holds"
    tightest = min(sizing.estimate.per_gpu, key=lambda each: each.free)
    over, capacity = -tightest.free, sizing.estimate.capacity
    if over > 0:
        takes = f"takes {tightest.kv_cache / GIB:.2f} GiB on {card}, and {over / GIB:.2f} GiB are missing"
        return Refusal("kv-blocks", f"{BLOCKS} {blocks} {takes}", (without,), over > DOUBTFUL * tightest.memory)
    if capacity is None:
        return Refusal("kv-blocks", f"{BLOCKS} is {blocks}: there is no block for any request", (without,))
    needed = math.ceil(capacity.blocks / capacity.max_concurrency - EPSILON) + 1
    shorter = (f"max-model-len: {sizing.largest}",) if sizing.largest >= SHORTEST else ()
    return Refusal(
        "kv-blocks",
        f"{BLOCKS} is {blocks}, which is {capacity.tokens:,} tokens; max-model-len {sizing.length} needs {needed} "
        "blocks, the one that the engine keeps among them: it refuses, or a request of that length waits for ever",
        (f"{BLOCKS}: {needed}", *shorter, without),
    )


def offload_cost(at: Situation) -> str | None:
    """What `cpu-offload-gb` costs; None where it is not used."""
    count = offloaded_bytes(at.question)
    return told_offload(at.question, count) if count else None
