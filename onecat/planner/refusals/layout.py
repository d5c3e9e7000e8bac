"""How many parts the model is divided into, and on what."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation


def sizes(at: Situation) -> Iterator[Refusal]:
    for name in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"):
        value = at.value(name)
        if isinstance(value, int) and value < 1:
            yield Refusal("layout", f"{name} is {value}, and cannot be below 1", (f"{name}: 1",))


def heads(at: Situation) -> Iterator[Refusal]:
    heads, parts = at.checkpoint.architecture.attention_heads, at.layout.tensor_parallel
    if heads is not None and heads % parts:
        fitting = [str(each) for each in range(1, heads + 1) if heads % each == 0 and each <= 16]
        yield Refusal(
            "tensor-parallel-heads",
            f"the checkpoint's {heads} attention heads cannot be divided among {parts} GPUs",
            (f"tensor-parallel-size: one of {', '.join(fitting)}",),
        )


def gpus(at: Situation) -> Iterator[Refusal]:
    needed = -(-at.layout.tensor_parallel * at.layout.pipeline_parallel * at.layout.replicas // at.hosts)
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
    needed = at.layout.tensor_parallel * at.layout.pipeline_parallel * at.layout.replicas
    if at.npus is not None and needed > at.npus:
        yield Refusal(
            "not-enough-npus",
            f"the layout needs {needed} NPU{'s' if needed > 1 else ''} and the host has {at.npus}",
            ("write a smaller tensor-parallel-size under serve", "onecat doctor"),
        )
