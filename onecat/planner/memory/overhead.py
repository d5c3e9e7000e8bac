"""What the engine takes outside of its tensors: inside of its budget, and beside it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.versions import behaviour_of
from onecat.resources import read_table

MIB = 2**20


def seen_by_engine(memory: int, capability: int | None) -> int:
    """The memory of a card as programs see it: what its driver reports in all, less what it keeps.

    Parameters:
        memory: bytes, as NVML and nvidia-smi tell them. capability: ten times; None for what is no NVIDIA GPU.
    """
    return memory if capability is None else memory - _of_capability("reserved", capability)


def overhead_bytes(settings: MemorySettings, device: Device) -> int:
    """What counts against the budget: what grows while the engine starts, and before 0.11 communication buffers.

    Versions before 0.6.5 count all that is in use on the device, the context with it.
    """
    if settings.platform == "cpu":
        return int(_table()["process"]["mib"]) * MIB
    if settings.platform != "cuda":
        return 0
    behaviour = behaviour_of(settings.engine_version)
    if not behaviour.growth_only:
        total = _of_capability("context", device.capability)
    else:
        total = _of_capability("growth", device.capability)
        if settings.graphs and behaviour.engine == "v1":
            total += _of_capability("compiled", device.capability)
    return total + (_of_ranks(settings, device) if behaviour.communication_inside else 0)


def outside_bytes(settings: MemorySettings, device: Device) -> int:
    """What the engine takes of the device before it starts to count: its context, and communication since 0.11."""
    if settings.platform != "cuda":
        return 0
    behaviour = behaviour_of(settings.engine_version)
    total = _of_capability("context", device.capability) if behaviour.growth_only else 0
    return total if behaviour.communication_inside else total + _of_ranks(settings, device)


def _of_capability(table: str, capability: int | None) -> int:
    rows: Sequence[Any] = _table()[table]
    below = [each for each in rows if each["capability"] <= (capability or 0)]
    return int((below[-1] if below else rows[0])["mib"]) * MIB


def _of_ranks(settings: MemorySettings, device: Device) -> int:
    own = f"communication_{device.capability}"
    rows: Sequence[Any] = _table().get(own) or _table()["communication"]
    return int(next((each for each in rows if each["ranks"] >= settings.tensor_parallel), rows[-1])["mib"]) * MIB


@functools.cache
def _table() -> Any:
    return read_table(Path(__file__).with_name("overhead.yaml"))
