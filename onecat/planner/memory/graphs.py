"""What the engine sets aside for CUDA graphs."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.runners import runner_of
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.versions import behaviour_of

LARGEST = 512
PER_GRAPH = 1 << 20
"""Least that the engine takes for each graph after the first of its kind (v1/worker/gpu_model_runner.py,
profile_cudagraph_memory)."""


def graph_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """Bytes that the engine takes off its budget for CUDA graphs before it sizes the KV cache.

    Model runner v2 of 0.27 takes nothing off, and so do versions before 0.20: their graphs live in what the budget
    leaves of the device.
    """
    del stage
    behaviour = behaviour_of(settings.engine_version)
    if not settings.graphs or settings.platform != "cuda" or not behaviour.graphs_inside:
        return 0
    if runner_of(checkpoint.architecture, behaviour, device) == "v2" and not behaviour.v2_graphs_inside:
        return 0
    sizes = capture_sizes(settings)
    return 2 * len(sizes) * PER_GRAPH


def capture_sizes(settings: MemorySettings) -> tuple[int, ...]:
    """Batch sizes that graphs are captured for: 1, 2, 4, multiples of 8 below 256 and of 16 from there.

    Source: vllm/config/vllm.py (_set_cudagraph_sizes).
    """
    largest = min(settings.max_num_seqs * (1 + settings.speculative_tokens) * 2, LARGEST)
    largest = min(largest, settings.max_num_batched_tokens)
    sizes = {1, 2, 4} | set(range(8, 256, 8)) | set(range(256, largest + 1, 16))
    if settings.max_num_batched_tokens <= largest:
        sizes.add(settings.max_num_batched_tokens)
    return tuple(sorted(each for each in sizes if each <= largest))
