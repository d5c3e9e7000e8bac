"""Compute capabilities as numbers, ten times, and as people write them; which of them have an FP8 KV cache."""

from __future__ import annotations

FP8_KV_CAPABILITY = 89
"""Least compute capability, ten times, for an FP8 KV cache in Triton attention (vllm triton_attn.py:518)."""

FLASH_ATTENTION_CAPABILITY = 80
"""Least compute capability, ten times, of FLASH_ATTN and FLASHINFER (vllm flash_attn.py:201, flashinfer.py:462)."""


def refuses_fp8_cache(capability: int, attention_backend: object) -> bool:
    """Whether a card cannot have an FP8 KV cache: from 8.0 on the backend decides, below none has one."""
    if capability >= FP8_KV_CAPABILITY:
        return False
    return capability < FLASH_ATTENTION_CAPABILITY or attention_backend == "TRITON_ATTN"


def tenfold(text: str | None) -> int | None:
    """7.0 as 70; None for what is no compute capability."""
    major, _, minor = (text or "").partition(".")
    return 10 * int(major) + int(minor) if major.isdecimal() and minor.isdecimal() else None


def told(capability: int) -> str:
    """A compute capability as people write it: 7.0."""
    return f"{capability // 10}.{capability % 10}"
