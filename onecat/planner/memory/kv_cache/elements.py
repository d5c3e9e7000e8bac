"""How many bytes a vector takes in the KV cache, by the engine's `--kv-cache-dtype`."""

from __future__ import annotations

from onecat.planner.memory.dtypes import DTYPE_BYTES

SCALE = 4
"""Bytes of the scale that the `*_per_token_head` kinds keep for each key and each value of a head (float32)."""

PACKED_LATENT = 656
"""Bytes of a token in fp8_ds_mla: 512 of FP8, 4 float32 scales, 64 values of BF16 that carry the position.

Source: vllm/v1/kv_cache_interface.py at 0.27.1 (MLAAttentionSpec.real_page_size_bytes).
"""

CACHE_BYTES = DTYPE_BYTES | {"int8": 1, "uint8": 1}


def element_bytes(kv_cache_dtype: str, dtype: str) -> int:
    """Bytes of one element; 1 for all that is packed into bytes. Source: STR_DTYPE_TO_TORCH_DTYPE of vLLM."""
    if kv_cache_dtype == "auto":
        return DTYPE_BYTES[dtype]
    return CACHE_BYTES.get(kv_cache_dtype, 1)


def vector_bytes(size: int, kv_cache_dtype: str, dtype: str) -> int:
    """Bytes of a vector of `size` elements, without the scales of a token and head.

    nvfp4: two elements in a byte and an FP8 scale for each 16. Source: nvfp4_kv_cache_full_dim of vLLM 0.27.1.
    """
    if kv_cache_dtype == "nvfp4":
        return size // 2 + size // 16
    if kv_cache_dtype == "int4_per_token_head":
        return size // 2
    return size * element_bytes(kv_cache_dtype, dtype)


def scale_bytes(heads: int, kv_cache_dtype: str) -> int:
    """Bytes of the scales of one token, of keys and values. Source: AttentionSpec.unpadded_page_size_bytes."""
    return 2 * heads * SCALE if kv_cache_dtype.endswith("_per_token_head") else 0


def key_value_bytes(heads: int, head_size: int, value_head_size: int, kv_cache_dtype: str, dtype: str) -> int:
    """Bytes of the keys and values of one token on one rank. heads: key-value heads of that rank."""
    key = vector_bytes(head_size, kv_cache_dtype, dtype)
    value = vector_bytes(value_head_size, kv_cache_dtype, dtype)
    return heads * (key + value) + scale_bytes(heads, kv_cache_dtype)


def latent_bytes(latent_rank: int, rope_size: int, kv_cache_dtype: str, dtype: str) -> int:
    """Bytes of one token's compressed vector, the same on every rank."""
    if kv_cache_dtype == "fp8_ds_mla":
        return PACKED_LATENT
    return vector_bytes(latent_rank + rope_size, kv_cache_dtype, dtype) + scale_bytes(1, kv_cache_dtype)
