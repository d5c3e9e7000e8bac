"""What an engine takes of a GPU beside weights and KV cache."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.stages import Stage


def activation_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """The peak of the engine's profile run above the weights."""
    raise NotImplementedError


def graph_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """What the engine sets aside for CUDA graphs."""
    raise NotImplementedError


def overhead_bytes(checkpoint: Checkpoint, settings: MemorySettings, device: Device) -> int:
    """CUDA's context, libraries' workspaces and communication buffers."""
    raise NotImplementedError
