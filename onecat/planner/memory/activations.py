"""The peak of the engine's profile run: what it needs above the weights while it works on the largest batch."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.weights import DTYPE_BYTES


def activation_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """The peak of the engine's profile run above the weights."""
    del device
    architecture = checkpoint.architecture
    rows, size = settings.max_num_batched_tokens, DTYPE_BYTES[settings.dtype]
    hidden = architecture.hidden_size or 0
    inner = 2 * (architecture.intermediate_size or 0) // settings.tensor_parallel
    if architecture.experts:
        inner = max(inner, 2 * architecture.experts.intermediate_size * architecture.experts.per_token)
    layer = rows * size * (2 * hidden + inner + inner // 2)
    logits = 0
    if stage.last:
        logits = settings.max_num_seqs * (architecture.vocabulary_size or 0) * (size + 4 * 3)
    return max(layer, logits + rows * size * 2 * hidden)
