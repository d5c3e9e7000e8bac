"""What the engine takes outside of its tensors."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.planner.memory.records import Device, MemorySettings


def overhead_bytes(checkpoint: Checkpoint, settings: MemorySettings, device: Device) -> int:
    """CUDA's context, libraries' workspaces and communication buffers."""
    del checkpoint, device
    if settings.platform != "cuda":
        return 0
    return 512 << 20
