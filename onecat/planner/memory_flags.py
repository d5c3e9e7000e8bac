"""The flags and variables of a question that decide about memory, resolved as the engine would. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from onecat.planner.hardware import GIB
from onecat.planner.memory import Device, MemorySettings, resolved_settings
from onecat.planner.questions import Question
from onecat.planner.records import Layout

JSON_FLAGS = ("speculative-config", "limit-mm-per-prompt")
FLASHINFER_CAPABILITY = 75
"""vllm/v1/attention/backends/flashinfer.py (supports_compute_capability)."""

CPU_KV_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"


def memory_settings(question: Question, layout: Layout, length: int, first: Device) -> MemorySettings:
    """The flags that decide about memory, resolved for a context of `length` tokens.

    Parameters:
        first: the first card, or the host, by whose memory the engine chooses sizes of a batch.
    """
    flags: dict[str, object] = {name: setting.value for name, setting in question.settings.items()}
    flags["max-model-len"] = length
    flags["tensor-parallel-size"] = layout.tensor_parallel
    flags["pipeline-parallel-size"] = layout.pipeline_parallel
    flags["kv-cache-dtype"] = _kv_cache_dtype(question)
    for name in JSON_FLAGS:
        flags[name] = _document(flags.get(name))
    share = flags.get("gpu-memory-utilization")
    if not isinstance(share, (int, float)) or not 0 < share <= 1:
        flags.pop("gpu-memory-utilization", None)
    found = resolved_settings(
        flags,
        question.checkpoint.architecture,
        replace(first, capability=question.capability),
        question.engine_version,
        question.hardware.platform,
        flashinfer=_has_flashinfer(question),
    )
    return replace(
        found,
        kv_cache_bytes=kv_cache_bytes(question),
        graphs=found.graphs and question.hardware.platform != "cpu",
        data_parallel=layout.replicas,
    )


def _has_flashinfer(question: Question) -> bool:
    """Whether tokens are chosen with it: it comes with vLLM's image and wheel, for compute capability 7.5 and newer."""
    capability = question.capability
    return (
        question.engine == "vllm"
        and capability is not None
        and capability >= FLASHINFER_CAPABILITY
        and question.environment.get("VLLM_USE_FLASHINFER_SAMPLER", "1") != "0"
    )


def kv_cache_bytes(question: Question) -> int | None:
    """Bytes per rank that the KV cache is given, where they are not computed."""
    stated = question.count("kv-cache-memory-bytes")
    if stated is not None or question.hardware.platform != "cpu":
        return stated
    text = question.environment.get(CPU_KV_VARIABLE, "")
    try:
        space = float(text)
    except ValueError:
        return None
    return int(space * GIB) if math.isfinite(space) and space > 0 else None


def _kv_cache_dtype(question: Question) -> str:
    """What `auto` becomes: FP8 where the checkpoint asks for it. Source: vllm/utils/torch_utils.py."""
    asked = question.value("kv-cache-dtype")
    if isinstance(asked, str) and asked not in ("auto", "fp16"):
        return asked
    claimed = question.checkpoint.quantization
    if asked != "fp16" and claimed is not None and claimed.kv_cache and question.hardware.platform == "cuda":
        return claimed.kv_cache
    return "auto"


def _document(stated: object) -> object:
    """The value of a flag that takes JSON, read; None for none and for what is no object."""
    try:
        found: Any = json.loads(stated) if isinstance(stated, str) else stated
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
