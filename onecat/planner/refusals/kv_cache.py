"""Data types of the KV cache."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.planner.capabilities import refuses_fp8_cache, told
from onecat.planner.records import Refusal
from onecat.planner.refusals.situation import Situation


def kv_cache_dtype(at: Situation) -> Iterator[Refusal]:
    value = at.value("kv-cache-dtype")
    if value == "fp16":
        yield Refusal(
            "kv-cache-dtype-fp16",
            "kv-cache-dtype fp16 was never valid in any version of vLLM",
            ("kv-cache-dtype: auto, which is the model's own type", "kv-cache-dtype: float16"),
        )
    capability = at.capability
    asked = _kv_cache_asked(at) if value in (None, "auto") else None
    if at.schema.unknown is not None:
        return
    if capability is None or not str(asked or value).startswith("fp8"):
        return
    if refuses_fp8_cache(capability, at.value("attention-backend")):
        yield Refusal(
            "kv-cache-dtype-fp8",
            f"an FP8 KV cache in Triton attention needs compute capability 8.9; the card has {told(capability)}"
            + (", and the checkpoint asks for one" if asked else ""),
            ("kv-cache-dtype: float16" if asked or _kv_cache_asked(at) else "kv-cache-dtype: auto",),
        )


def _kv_cache_asked(at: Situation) -> str | None:
    """What the checkpoint makes of `kv-cache-dtype: auto`."""
    return None if at.checkpoint.quantization is None else at.checkpoint.quantization.kv_cache
