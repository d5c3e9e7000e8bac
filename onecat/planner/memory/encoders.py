"""The profile run's pass through an encoder for pictures or sound."""

from __future__ import annotations

from onecat.checkpoints import Architecture
from onecat.checkpoints.architectures import Encoder
from onecat.planner.memory.batches import Batch
from onecat.planner.memory.records import MemorySettings

MERGED = 4
"""Patches that become one token of the prompt: 2 x 2 in the towers of the Qwen and Gemma families."""


def peak_bytes(architecture: Architecture, batch: Batch, settings: MemorySettings) -> int:
    """Bytes alive in the largest tower while it looks at as many items as a batch may hold."""
    if settings.text_only:
        return 0
    return max((_tower(each, batch) for each in architecture.encoders), default=0)


def output_bytes(architecture: Architecture, batch: Batch, settings: MemorySettings) -> int:
    """Bytes of what the towers put into the prompt."""
    if settings.text_only:
        return 0
    return max((_tokens(each, batch) * batch.hidden for each in architecture.encoders), default=0)


def _tokens(encoder: Encoder, batch: Batch) -> int:
    """Tokens of the profiled items: at least one item, and what the batch may hold.

    Source: vllm/multimodal/encoder_budget.py (MultiModalBudget).
    """
    if not encoder.tokens:
        return batch.tokens
    return max(batch.tokens, encoder.tokens) // encoder.tokens * encoder.tokens


def _tower(encoder: Encoder, batch: Batch) -> int:
    patches = _tokens(encoder, batch) * MERGED
    return patches * (5 * encoder.hidden_size + 2 * encoder.intermediate_size) * batch.size
