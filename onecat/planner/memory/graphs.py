"""What the engine sets aside for CUDA graphs."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.planner.memory.dtypes import DTYPE_BYTES
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.runners import runner_of
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.versions import behaviour_of

LARGEST = 512
LARGEST_OF = {"GptOssForCausalLM": 1024}
"""Architectures with a largest step of their own (vllm/model_executor/models/config.py)."""
MIB = 2**20

FULL_GRAPH = MIB
"""Least that the engine takes for a graph of the whole model (v1/worker/gpu_model_runner.py, profile_cudagraph_memory).
"""
LAYER_OF_GRAPH = 0.15 * MIB
"""Of one layer in a graph that is captured piece by piece: vLLM 0.27.1 on an H200 measured 6 MiB with 48 layers
(Qwen3-30B-A3B), 10 with 64 (Qwen3.5-27B), 4 with 24 (gpt-oss-20b): tests/fixtures/memory/h200.yaml."""

LAYER_OF_FIRST = 1.8 * MIB
"""Of one layer in the first such graph beside the activations of its batch: 102 and 204 MiB there, and 174 MiB in all
with 64 layers and steps of at most 32 tokens (https://github.com/noonghunna/club-3090/issues/127)."""


def graph_bytes(checkpoint: Checkpoint, settings: MemorySettings, stage: Stage, device: Device) -> int:
    """Bytes that the engine takes off its budget for CUDA graphs before it sizes the KV cache.

    Model runner v2 of 0.27 takes nothing off, and so do versions before 0.20: their graphs live in what the budget
    leaves of the device.
    """
    behaviour = behaviour_of(settings.engine_version)
    if not settings.graphs or settings.platform != "cuda" or not behaviour.graphs_inside:
        return 0
    if runner_of(checkpoint.architecture, behaviour, device) == "v2" and not behaviour.v2_graphs_inside:
        return 0
    architecture, layers = checkpoint.architecture, len(stage.layers)
    sizes = capture_sizes(settings, LARGEST_OF.get(architecture.name or "", LARGEST))
    inner = (architecture.intermediate_size or 0) // settings.tensor_parallel
    pool = sizes[-1] * (4 * (architecture.hidden_size or 0) + 3 * inner) * DTYPE_BYTES[settings.dtype]
    further = (len(sizes) - 1) * (layers * LAYER_OF_GRAPH + FULL_GRAPH)
    return int(pool + layers * LAYER_OF_FIRST + further)


def capture_sizes(settings: MemorySettings, most: int = LARGEST) -> tuple[int, ...]:
    """Batch sizes that graphs are captured for: 1, 2, 4, multiples of 8 below 256 and of 16 from there.

    Source: vllm/config/vllm.py (_set_cudagraph_sizes).
    """
    largest = min(settings.max_num_seqs * (1 + settings.speculative_tokens) * 2, most)
    largest = min(largest, settings.max_num_batched_tokens)
    sizes = {1, 2, 4} | set(range(8, 256, 8)) | set(range(256, largest + 1, 16))
    if settings.max_num_batched_tokens <= largest:
        sizes.add(settings.max_num_batched_tokens)
    return tuple(sorted(each for each in sizes if each <= largest))
