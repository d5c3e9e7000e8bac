"""What the engine sets aside for CUDA graphs."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.stages import Stage


def graph_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """Bytes that the engine takes off its budget for CUDA graphs before it sizes the KV cache."""
    del checkpoint, stage, device
    return 0 if not settings.graphs or settings.platform != "cuda" else 256 << 20
