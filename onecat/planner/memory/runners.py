"""Which of the engine's model runners a model gets."""

from __future__ import annotations

from typing import Literal

from onecat.checkpoints import Architecture
from onecat.checkpoints.architectures import StateLayers
from onecat.planner.memory.records import Device
from onecat.planner.memory.versions import Behaviour

ModelRunner = Literal["v0", "v1", "v2"]


def runner_of(architecture: Architecture, behaviour: Behaviour, device: Device) -> ModelRunner:
    """The model runner by default. Source: vllm/config/vllm.py (use_v2_model_runner) of each version."""
    if behaviour.engine == "v0" or (device.capability or 999) < behaviour.v1_capability:
        return "v0"
    if behaviour.v2_always or architecture.name in behaviour.v2_architectures:
        return "v2"
    hybrid = any(isinstance(each, StateLayers) for each in architecture.caches)
    return "v2" if behaviour.v2_dense and architecture.experts is None and not hybrid else "v1"
