"""Which layers each pipeline stage has."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.checkpoints import Architecture


@dataclass(frozen=True)
class Stage:
    """The decoder layers of a pipeline stage; first holds the embedding, last the output head."""

    layers: range
    first: bool
    last: bool


def stage_layers(architecture: Architecture, stages: int) -> tuple[Stage, ...]:
    """The stages in order. Layers that do not divide evenly go one each to the last stages but the very last.

    Source: vllm/distributed/utils.py (get_pp_indices).
    """
    layers = architecture.layers or 0
    sizes = [layers // stages] * stages
    for offset in range(2, layers % stages + 2):
        sizes[-offset] += 1
    starts = [sum(sizes[:index]) for index in range(stages)]
    return tuple(
        Stage(range(start, start + size), index == 0, index == stages - 1)
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True))
    )
