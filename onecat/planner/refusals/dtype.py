"""The data types that cards and models refuse."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.engines import BFLOAT16_CAPABILITY
from onecat.planner.capabilities import told
from onecat.planner.hardware import GIB
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation


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
    if kind not in at.schema.float16_refused or at.value("dtype") not in ("float16", "half"):
        return
    if at.capability is not None and at.capability < BFLOAT16_CAPABILITY:
        held = at.checkpoint.architecture.parameters
        sizes = f": {4 * held / GIB:.1f} GiB for its weights in place of {2 * held / GIB:.1f}" if held else ""
        yield Refusal(
            "dtype-float16",
            f"the engine refuses float16 for model type {kind}, whose values overflow, and a card with compute "
            f"capability {told(at.capability)} has no bfloat16: float32 is left, at twice the memory{sizes}, "
            "without the kernels for float16 that onecat's patches bring",
            ("dtype: float32",),
        )
        return
    yield Refusal(
        "dtype-float16",
        f"the engine refuses float16 for model type {kind}: its values overflow",
        ("dtype: bfloat16",) if at.capability is not None else ("dtype: bfloat16", "dtype: float32"),
    )
