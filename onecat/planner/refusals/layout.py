"""How many parts the model is divided into, and on what."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.planner.parts import undivided_checkpoint
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation


def sizes(at: Situation) -> Iterator[Refusal]:
    for name in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"):
        value = at.value(name)
        if isinstance(value, int) and value < 1:
            yield Refusal("layout", f"{name} is {value}, and cannot be below 1", (f"{name}: 1",))


CODES = {"heads": "tensor-parallel-heads", "state": "tensor-parallel-heads"}
MOST_RANKS = 16


def parts(at: Situation) -> Iterator[Refusal]:
    """Heads, states, and blocks of scales that the ranks of tensor parallelism cannot share."""
    found = undivided_checkpoint(
        at.checkpoint, at.layout.tensor_parallel, at.value("enable-expert-parallel") is True, at.layout.replicas
    )
    if not found:
        return
    first = found[0]
    fitting = [
        str(count)
        for count in range(1, MOST_RANKS + 1)
        if not undivided_checkpoint(at.checkpoint, count, at.value("enable-expert-parallel") is True)
    ]
    fix = [f"tensor-parallel-size: one of {', '.join(fitting)}"]
    if first.kind in ("blocks", "groups"):
        fix.append("pipeline-parallel-size in its place: stages take whole layers")
        if first.experts:
            fix.append("enable-expert-parallel: true, which deals experts out whole")
    also = f" (and {len(found) - 1} more kinds of layers)" if len(found) > 1 else ""
    yield Refusal(CODES.get(first.kind, "tensor-parallel-blocks"), f"{first.text}{also} ({first.source})", tuple(fix))


def gpus(at: Situation) -> Iterator[Refusal]:
    needed = -(-at.layout.cards // at.hosts)
    if at.profile.hardware.accelerator == "nvidia" and at.gpus is not None and needed > at.gpus:
        yield Refusal(
            "not-enough-gpus",
            f"the layout needs {needed} GPU{'s' if needed > 1 else ''} and the host has {at.gpus}",
            (
                f"tensor-parallel-size: {at.gpus}" if at.gpus else "choose a host with the GPUs of the profile",
                "onecat doctor",
            ),
        )


def npus(at: Situation) -> Iterator[Refusal]:
    needed = at.layout.cards
    if at.npus is not None and needed > at.npus:
        yield Refusal(
            "not-enough-npus",
            f"the layout needs {needed} NPU{'s' if needed > 1 else ''} and the host has {at.npus}",
            ("write a smaller tensor-parallel-size under serve", "onecat doctor"),
        )
