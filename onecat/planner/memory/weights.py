"""The weights of one rank, as the engine holds them after loading."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.stages import Stage


def weight_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """Bytes of the weights of one rank of a stage.

    From the headers where there are weight files, else from the architecture and its quantisation.
    """
    raise NotImplementedError
