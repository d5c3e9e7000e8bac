"""The weights of one rank, as the engine holds them after loading."""

from __future__ import annotations

from onecat.checkpoints import Architecture, Checkpoint, Quantization
from onecat.checkpoints.architectures import Weight
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.sharding import columns_of_rank, division_of, key_value_layers, rows_of_rank
from onecat.planner.memory.stages import Stage

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4}


def weight_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """Bytes of the weights of one rank of a stage.

    From the headers where there are weight files, else from the architecture and its quantisation.
    """
    architecture = checkpoint.architecture
    total = sum(
        _held(each, checkpoint.quantization, architecture, settings)
        for each in architecture.weights
        if _on_stage(each, stage, settings)
    )
    if stage.last and not stage.first and architecture.tied_embeddings:
        total += sum(
            _held(each, checkpoint.quantization, architecture, settings)
            for each in architecture.weights
            if each.kind == "embedding"
        )
    return total


def _on_stage(weight: Weight, stage: Stage, settings: MemorySettings) -> bool:
    if weight.part == "draft":
        return settings.draft_layers > 0 and stage.last
    if weight.layer is not None and weight.part == "language":
        return weight.layer in stage.layers
    if weight.kind == "embedding" or weight.part in ("vision", "audio"):
        return stage.first
    return stage.last


def _held(
    weight: Weight, quantization: Quantization | None, architecture: Architecture, settings: MemorySettings
) -> int:
    division = division_of(weight.module)
    heads = key_value_layers(architecture, weight.layer)
    ranks, count = settings.tensor_parallel, weight.count
    if settings.expert_parallel and count > 1:
        ranks, count = 1, -(-count // settings.tensor_parallel)
    if not weight.shape:
        return DTYPE_BYTES[settings.dtype]
    rows = rows_of_rank(weight.shape[0], division, ranks, heads)
    elements = rows
    for size in weight.shape[1:2]:
        elements *= columns_of_rank(size, division, ranks)
    for size in weight.shape[2:]:
        elements *= size
    scheme = quantization.scheme_of(weight.module) if quantization and weight.kind == "linear" else None
    if scheme is None:
        return elements * count * DTYPE_BYTES[settings.dtype]
    scales = elements / scheme.group_size if scheme.group_size else 0.0
    return int((elements * scheme.bits / 8 + scales * (1 if scheme.scale_dtype == "F8_E4M3" else 2)) * count)
