"""The profile run's pass through the decoder: the layer that has the most alive at once."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.checkpoints.architectures import Experts, KeyValueLayers, LatentLayers, StateLayers
from onecat.planner.memory.batches import Batch
from onecat.planner.memory.layouts import kernel_of
from onecat.planner.memory.parameters import absorbed
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.runners import ModelRunner
from onecat.planner.memory.stages import Stage
from onecat.planner.memory.versions import Behaviour

LATENT_WORKSPACE_TOKENS = 64 * 1024
"""Most tokens of context that latent attention unpacks at once (vllm/model_executor/layers/attention/
mla_attention.py, determine_chunked_prefill_workspace_size)."""

WEIGHT_ONLY = ("marlin", "panels")
"""Kernels that take activations as they are."""
PANEL_TILE = 64 * 2**20
"""The most that dequantised weights take at once where they lie in panels (patches/vllm-0.27.1/add/vllm_volta/ops.py,
WORKSPACE_ELEMENTS)."""


def peak_bytes(
    checkpoint: Checkpoint, batch: Batch, settings: MemorySettings, stage: Stage, device: Device, behaviour: Behaviour,
    runner: ModelRunner,
) -> int:  # fmt: skip
    """Bytes that are alive in the largest layer."""
    architecture = checkpoint.architecture
    parts = [_feed_forward(checkpoint, batch, settings, device, runner)]
    if architecture.experts is not None and set(architecture.experts.layers) & set(stage.layers):
        parts.append(_mixture(checkpoint, batch, settings, device, behaviour))
    parts += [_attention(checkpoint, each, batch, settings) for each in architecture.caches]
    schemes = checkpoint.quantization.schemes if checkpoint.quantization is not None else ()
    has_panels = any(kernel_of(each, settings, device) == "panels" for each in schemes)
    return max(parts) + (PANEL_TILE if has_panels else 0)


def _quantised_activations(checkpoint: Checkpoint, settings: MemorySettings, device: Device) -> bool:
    """Whether activations are turned into 8 or 4 bits, so that both forms are alive."""
    schemes = checkpoint.quantization.schemes if checkpoint.quantization is not None else ()
    return any(each.activations and kernel_of(each, settings, device) not in WEIGHT_ONLY for each in schemes)


def _feed_forward(
    checkpoint: Checkpoint, batch: Batch, settings: MemorySettings, device: Device, runner: ModelRunner
) -> int:
    """Gate and up, their product, and hidden states: residual, input and output; one more when the layer is compiled.

    Layer by layer, with tensor parallelism, there are two more: the output of all ranks, and the input's caller's.
    """
    inner = (checkpoint.architecture.intermediate_size or 0) // settings.tensor_parallel
    copy = batch.tokens * inner if _quantised_activations(checkpoint, settings, device) else 0
    compiled = settings.graphs and runner != "v0"
    states = 4 if compiled else 3 if settings.tensor_parallel == 1 else 5
    return states * batch.states + batch.tokens * 3 * inner * batch.size + copy


def workspace_bytes(
    checkpoint: Checkpoint, batch: Batch, settings: MemorySettings, stage: Stage, behaviour: Behaviour
) -> int:
    """What mixtures of experts work in, where the engine keeps it from layer to layer and beyond: 0 elsewhere.

    Source: vllm/v1/worker/workspace.py; workspace_shapes in vllm/model_executor/layers/fused_moe/experts/triton_moe.py.
    """
    experts = checkpoint.architecture.experts
    if behaviour.moe_chunk or experts is None or not set(experts.layers) & set(stage.layers):
        return 0
    inner, hidden = _inner(experts, settings), checkpoint.architecture.hidden_size or 0
    rows = batch.tokens * experts.per_token
    return rows * (max(inner, hidden) + max(2 * inner, hidden)) * batch.size


def _inner(experts: Experts, settings: MemorySettings) -> int:
    return experts.intermediate_size // (1 if settings.expert_parallel else settings.tensor_parallel)


def _mixture(
    checkpoint: Checkpoint, batch: Batch, settings: MemorySettings, device: Device, behaviour: Behaviour
) -> int:
    """Beside what is kept: caches of a chunk's tokens for each of their experts, scores, and what is shared.

    Source: vllm/model_executor/layers/fused_moe/fused_moe.py (fused_experts_impl) at 0.10.2.
    """
    architecture = checkpoint.architecture
    experts = architecture.experts
    assert experts is not None
    inner, hidden = _inner(experts, settings), architecture.hidden_size or 0
    rows = min(batch.tokens, behaviour.moe_chunk or batch.tokens) * experts.per_token
    caches = rows * (max(2 * inner, hidden) + inner) * batch.size if behaviour.moe_chunk else 0
    if _quantised_activations(checkpoint, settings, device):
        caches += batch.tokens * hidden + rows * inner
    shared = 3 * experts.shared_intermediate_size // settings.tensor_parallel
    scores = batch.tokens * experts.count * (4 + batch.size)
    return 4 * batch.states + max(caches, batch.tokens * shared * batch.size) + scores


def _attention(
    checkpoint: Checkpoint, cache: KeyValueLayers | LatentLayers | StateLayers, batch: Batch, settings: MemorySettings
) -> int:
    ranks = settings.tensor_parallel
    if isinstance(cache, KeyValueLayers):
        heads = -(-cache.query_heads // ranks)
        kept = -(-cache.key_value_heads // ranks)
        projected = heads * cache.head_size + kept * (cache.head_size + cache.value_head_size)
        turned = heads * cache.head_size + kept * cache.head_size
        output = heads * cache.value_head_size
        return 3 * batch.states + batch.tokens * (projected + turned + output) * batch.size
    if isinstance(cache, LatentLayers):
        unpacked = _unpacked_rows(checkpoint) // ranks
        context = min(max(8 * settings.max_model_len, 4 * batch.sequences * 16), LATENT_WORKSPACE_TOKENS)
        queries = -(-cache.query_heads // ranks) * (cache.latent_rank + cache.rope_size)
        return 3 * batch.states + (context * unpacked + batch.tokens * (queries + unpacked)) * batch.size
    states = sum(-(-each.shape[each.divided] // ranks) for each in cache.states if each.name == "convolution")
    return 3 * batch.states + batch.tokens * 3 * states * batch.size


def _unpacked_rows(checkpoint: Checkpoint) -> int:
    """Elements of keys and values of one token that kv_b_proj makes for all heads."""
    return next((each.shape[0] for each in absorbed(checkpoint)), 0)
