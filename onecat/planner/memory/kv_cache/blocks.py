"""How many tokens a block has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onecat.checkpoints.architectures.records import Architecture, LatentLayers, StateLayers
from onecat.planner.memory.kv_cache.pages import StateMode, ceil_div
from onecat.planner.memory.kv_cache.rules import Rules
from onecat.planner.memory.records import MemorySettings

GPU_BLOCK, CPU_BLOCK = 16, 128
KERNEL_BLOCK = 16
"""Tokens that blocks of FlashAttention, FlashInfer, Triton and the CPU's attention are multiples of."""

SPARSE_BLOCK = 64
COMPRESSED_BLOCK = 256
"""Tokens of a block of sparse latent attention, and of that with compressed entries (DeepSeek-V4).

Source: get_supported_kernel_block_sizes and get_preferred_block_size in vllm/v1/attention/backends/mla at 0.27.1.
"""

LATENT_BLOCKS = {"FLASHMLA": 64, "CUTLASS_MLA": 128, "FLASHMLA_SPARSE": 64, "FLASH_ATTN_MLA_SPARSE": 64}
"""Tokens of a block of backends for latent attention that take no other; the rest take 16 or a version's own."""

NO_CHUNK = 2048
"""Stands for the chunk of layers that have none. Source: ModelConfig.get_mamba_chunk_size of vLLM 0.27.1."""


@dataclass(frozen=True)
class BlockSizes:
    """Tokens of a block of attention, of sliding windows, of states; state_page: bytes that a page of states has."""

    attention: int
    window: int
    state: int
    state_page: int


def block_sizes(
    architecture: Architecture, settings: MemorySettings, rules: Rules, token: int, state: int
) -> BlockSizes:
    """The engine's choice. token: bytes of one token in one layer of attention; state: of a layer's states.

    A block of attention is made so large that it covers the states of a layer; those are padded to its size.
    Source: vllm/platforms/interface.py at 0.27.1 (update_block_size_for_backend, _align_hybrid_block_size).
    """
    base = settings.block_size or _backend_block(architecture, settings, rules)
    window = base if rules.window_block is None else rules.window_block
    mode = state_mode(architecture, settings, rules)
    if not state:
        return BlockSizes(base, window, base, 0)
    if not token:
        return BlockSizes(base, window, settings.max_model_len if mode == "none" else base, 0)
    aligned = max(KERNEL_BLOCK, base)
    if _latent(architecture):
        aligned = max(aligned, rules.latent_alignment)
    if mode == "all":
        aligned = math.lcm(aligned, _chunk(architecture))
    block = max(base, aligned * ceil_div(state, aligned * token))
    return BlockSizes(block, window, settings.max_model_len if mode == "none" else block, block * token)


def state_mode(architecture: Architecture, settings: MemorySettings, rules: Rules) -> StateMode:
    """How states of prefixes are kept. Source: vllm/model_executor/models/config.py (MambaModelConfig) at 0.27.1."""
    if not settings.prefix_caching or not rules.states:
        return "none"
    return "all" if any(each.kind in rules.all_states for each in _states(architecture)) else "align"


def _chunk(architecture: Architecture) -> int:
    return next((each.chunk for each in _states(architecture) if each.chunk is not None), NO_CHUNK)


def _states(architecture: Architecture) -> list[StateLayers]:
    return [each for each in architecture.caches if isinstance(each, StateLayers)]


def _latent(architecture: Architecture) -> list[LatentLayers]:
    return [each for each in architecture.caches if isinstance(each, LatentLayers)]


def _backend_block(architecture: Architecture, settings: MemorySettings, rules: Rules) -> int:
    if settings.platform == "cpu":
        return CPU_BLOCK
    latent = _latent(architecture)
    if settings.platform == "cuda" and latent:
        return _latent_block(latent, settings, rules)
    return GPU_BLOCK


def _latent_block(latent: list[LatentLayers], settings: MemorySettings, rules: Rules) -> int:
    """By the backend that is asked for, or that the engine prefers on the device (vllm/platforms/cuda.py)."""
    if any(each.window is not None or each.compress_ratio > 1 for each in latent):
        return COMPRESSED_BLOCK
    if any(each.index_head_size is not None for each in latent):
        return SPARSE_BLOCK
    if settings.attention_backend is not None:
        asked = settings.attention_backend.upper()
        return LATENT_BLOCKS.get(asked, rules.flashinfer_mla_block if asked == "FLASHINFER_MLA" else GPU_BLOCK)
    family = (settings.capability or 0) // 10
    if family == 10:
        return rules.flashinfer_mla_block
    if family == 9 and settings.kv_cache_dtype.startswith("fp8"):
        return LATENT_BLOCKS["FLASHMLA"]
    return GPU_BLOCK
