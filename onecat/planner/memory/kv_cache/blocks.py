"""How many tokens a block has."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.checkpoints.architectures.records import Architecture, LatentLayers
from onecat.planner.memory.kv_cache.pages import StateMode, ceil_div
from onecat.planner.memory.records import MemorySettings

GPU_BLOCK, CPU_BLOCK = 16, 128
KERNEL_BLOCK = 16
"""Tokens that blocks of FlashAttention, Triton and the CPU's attention are multiples of."""

LATENT_ALIGNMENT = 128
"""Tokens that blocks of a hybrid model with latent attention are multiples of."""


@dataclass(frozen=True)
class BlockSizes:
    """Tokens of a block of attention, of sliding windows, of states; state_page: bytes that a page of states has."""

    attention: int
    window: int
    state: int
    state_page: int


def block_sizes(architecture: Architecture, settings: MemorySettings, token: int, state: int) -> BlockSizes:
    """The engine's choice. token: bytes of one token in one layer of attention; state: of a layer's states.

    A block of attention is made so large that it covers the states of a layer; those are padded to its size.
    Source: vllm/platforms/interface.py at 0.27.1 (update_block_size_for_backend, _align_hybrid_block_size).
    """
    base = settings.block_size or (CPU_BLOCK if settings.platform == "cpu" else GPU_BLOCK)
    if not state:
        return BlockSizes(base, KERNEL_BLOCK, base, 0)
    mode = state_mode(settings)
    if not token:
        return BlockSizes(base, KERNEL_BLOCK, base if mode != "none" else settings.max_model_len, 0)
    aligned = max(KERNEL_BLOCK, base)
    if any(isinstance(each, LatentLayers) for each in architecture.caches):
        aligned = max(aligned, LATENT_ALIGNMENT)
    block = max(base, aligned * ceil_div(state, aligned * token))
    return BlockSizes(block, KERNEL_BLOCK, settings.max_model_len if mode == "none" else block, block * token)


def state_mode(settings: MemorySettings) -> StateMode:
    """How states of prefixes are kept."""
    return "align" if settings.prefix_caching else "none"
