"""All parts of the memory model together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onecat.checkpoints import Checkpoint
from onecat.planner.memory.activations import activation_bytes
from onecat.planner.memory.graphs import graph_bytes
from onecat.planner.memory.kv_cache import given_bytes, kv_capacity, needed_for
from onecat.planner.memory.overhead import outside_bytes, overhead_bytes
from onecat.planner.memory.records import Device, Estimate, GpuMemory, MemorySettings
from onecat.planner.memory.stages import Stage, stage_layers
from onecat.planner.memory.weights import weight_bytes


def estimate(checkpoint: Checkpoint, devices: Sequence[Device], settings: MemorySettings) -> Estimate:
    """What one replica of a model takes.

    Parameters:
        devices: at least tensor_parallel x pipeline_parallel of them, by rank.

    Raises ValueError when there are fewer.
    """
    ranks = settings.tensor_parallel * settings.pipeline_parallel
    if len(devices) < ranks:
        raise ValueError(f"{ranks} ranks need as many devices, not {len(devices)}")
    stages = stage_layers(checkpoint.architecture, settings.pipeline_parallel)
    given = given_bytes(checkpoint.architecture, settings, stages)
    alike: dict[tuple[Stage, Device], GpuMemory] = {}
    per_gpu = []
    for rank, device in enumerate(devices[:ranks]):
        stage = rank // settings.tensor_parallel
        key = (stages[stage], device)
        if key not in alike:
            alike[key] = _of_rank(checkpoint, settings, *key)
        found = alike[key]
        per_gpu.append(replace(found, rank=rank, kv_cache=found.kv_cache if given is None else given[stage]))
    by_stage = [
        min(each.kv_cache for each in per_gpu if each.rank // settings.tensor_parallel == stage)
        for stage in range(settings.pipeline_parallel)
    ]
    capacity = kv_capacity(checkpoint.architecture, settings, stages, by_stage)
    needed = needed_for(checkpoint.architecture, settings, stages, settings.max_model_len)
    missing = [max(0, want - have) for want, have in zip(needed, by_stage, strict=True)]
    if given is not None:
        # Blocks that are given are set aside whatever the share of the device that the engine may use.
        missing += [max(0, -each.free) for each in per_gpu]
    estimated = tuple(filter(None, (checkpoint.architecture.estimated,)))
    return Estimate(tuple(per_gpu), capacity, max(missing), estimated)


def _of_rank(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> GpuMemory:
    budget = int(device.memory * settings.utilization)
    weights = weight_bytes(checkpoint, settings, stage, device)
    activations = activation_bytes(checkpoint, settings, stage, device)
    graphs = graph_bytes(checkpoint, settings, stage, device)
    overhead = overhead_bytes(settings, device)
    left = budget - weights - activations - graphs - overhead
    return GpuMemory(
        rank=0,
        memory=device.memory,
        budget=budget,
        weights=weights,
        activations=activations,
        graphs=graphs,
        overhead=overhead,
        other=device.used,
        kv_cache=left if settings.kv_cache_bytes is None else settings.kv_cache_bytes,
        outside=outside_bytes(settings, device),
    )
