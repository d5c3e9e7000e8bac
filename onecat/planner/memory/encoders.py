"""The profile run's pass through an encoder for pictures or sound."""

from __future__ import annotations

from onecat.checkpoints import Architecture
from onecat.checkpoints.architectures import Encoder, KeyValueLayers
from onecat.planner.memory.batches import Batch
from onecat.planner.memory.records import MemorySettings

MERGED = 4
"""Patches that become one token of the prompt: 2 x 2 in the towers of the Qwen and Gemma families."""

PIXELS = 2 * 3 * 16 * 16
"""Numbers of one patch: two frames of three colours (vllm/model_executor/models/qwen3_vl.py)."""

PADDED_TILE = 8
"""Llama 3.2 Vision pads the patches of a tile to a multiple of it (vllm/model_executor/models/mllama.py at 0.6.6)."""


def peak_bytes(architecture: Architecture, batch: Batch, settings: MemorySettings) -> int:
    """Bytes alive in the largest tower while it looks at as many items as a batch may hold."""
    if settings.text_only:
        return 0
    crossing = _crosses(architecture)
    return max(
        (_crossed(each, batch) if crossing else _tower(each, batch, settings) for each in architecture.encoders),
        default=0,
    )


def output_bytes(architecture: Architecture, batch: Batch, settings: MemorySettings) -> int:
    """Bytes of what the towers put into the prompt."""
    if settings.text_only or _crosses(architecture):
        return 0
    return max((_tokens(each, batch) * batch.hidden for each in architecture.encoders), default=0)


def _crosses(architecture: Architecture) -> bool:
    return any(isinstance(each, KeyValueLayers) and each.cross for each in architecture.caches)


def _tokens(encoder: Encoder, batch: Batch) -> int:
    """Tokens of the profiled items: at least one item, and what the batch may hold.

    Source: vllm/multimodal/encoder_budget.py (MultiModalBudget).
    """
    if not encoder.tokens:
        return batch.tokens
    return max(batch.tokens, encoder.tokens) // encoder.tokens * encoder.tokens


def _tower(encoder: Encoder, batch: Batch, settings: MemorySettings) -> int:
    """Pictures and their patches, five states of each patch, and what ranks divide: q, k, v and the inner layer."""
    patches = _tokens(encoder, batch) * MERGED
    ranks = 1 if settings.encoders_whole else settings.tensor_parallel
    divided = (3 * encoder.hidden_size + encoder.intermediate_size) // ranks
    return patches * (2 * PIXELS + 5 * encoder.hidden_size + divided) * batch.size


def _crossed(encoder: Encoder, batch: Batch) -> int:
    """Every sequence has a picture, whose patches have a mask for each other and go through two transformers.

    Alive in the second: five states kept for the output and their copy, three of the layer and two of the model, the
    inner layer before and after its activation.
    """
    patches = -(-(encoder.tokens or 0) // PADDED_TILE) * PADDED_TILE
    row = patches + 15 * encoder.hidden_size + 2 * encoder.intermediate_size
    return batch.sequences * patches * row * batch.size
