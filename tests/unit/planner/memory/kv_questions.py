"""Made-up models and memory for them: what the managers of real engines are asked as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onecat.checkpoints.architectures import Architecture, KeyValueLayers
from onecat.planner.memory import MemorySettings
from tests.unit.planner.memory.kv_examples import (
    GIB,
    QWEN36_27B,
    QWEN36_35B,
    deepseek_v4_flash,
    dense,
    latent,
    settings,
    windowed,
)


@dataclass(frozen=True)
class Question:
    """A made-up model, and the memory on each of its GPUs."""

    architecture: Architecture
    settings: MemorySettings
    available: tuple[int, ...]


def gemma4() -> Architecture:
    full, rest = tuple(range(5, 30, 6)), tuple(index for index in range(30) if index % 6 != 5)
    return Architecture(
        layers=30,
        caches=(KeyValueLayers(full, 16, 2, 512, 512), KeyValueLayers(rest, 16, 8, 256, 256, window=1024)),
    )


def llama4() -> Architecture:
    full, rest = tuple(range(3, 48, 4)), tuple(index for index in range(48) if index % 4 != 3)
    return Architecture(
        layers=48, caches=(KeyValueLayers(full, 40, 8, 128, 128), KeyValueLayers(rest, 40, 8, 128, 128, chunk=8192))
    )


def mimo() -> Architecture:
    full = (0, *range(5, 48, 6))
    rest = tuple(index for index in range(48) if index not in full)
    return Architecture(
        layers=48, caches=(KeyValueLayers(full, 64, 4, 192, 128), KeyValueLayers(rest, 64, 8, 192, 128, window=128))
    )


def whisper() -> Architecture:
    own = tuple(range(32))
    return Architecture(
        layers=32, caches=(KeyValueLayers(own, 20, 20, 64, 64), KeyValueLayers(own, 20, 20, 64, 64, cross=True))
    )


def question(architecture: Architecture, gib: float, **given: Any) -> Question:
    asked = settings(**{"max_model_len": 32768, **given})
    return Question(architecture, asked, (int(gib * GIB),) * asked.pipeline_parallel)


DRAFT = {"draft_layers": 1, "speculative_tokens": 3}
QUESTIONS = {
    "dense": question(dense(32, 32, 8, 128), 10),
    "dense, 8 ranks of 4 heads": question(dense(48, 32, 4, 128), 3.3, tensor_parallel=8),
    "dense, 3 stages": question(dense(32, 32, 8, 128), 5, pipeline_parallel=3),
    "nvfp4": question(dense(32, 32, 8, 128), 5, kv_cache_dtype="nvfp4"),
    "int8 by token and head": question(dense(32, 32, 8, 128), 5, kv_cache_dtype="int8_per_token_head"),
    "int4 by token and head": question(dense(32, 32, 8, 128), 5, kv_cache_dtype="int4_per_token_head"),
    "windows": question(windowed(30, 6, 1024), 5),
    "windows that do not divide evenly": question(windowed(62, 6, 1024), 8, max_model_len=131072),
    "windows, 2 stages": question(windowed(62, 6, 1024), 4, pipeline_parallel=2),
    "windows without the hybrid manager": question(windowed(30, 6, 1024), 5, hybrid_manager=False),
    "windows that are most of it": question(windowed(36, 2, 128, size=64), 2, max_model_len=131072),
    "too little": question(windowed(30, 6, 1024), 0.3, max_model_len=131072),
    "heads of two sizes": question(gemma4(), 10),
    "values smaller than keys": question(mimo(), 10, tensor_parallel=4, kv_cache_dtype="fp8"),
    "chunks": question(llama4(), 12, max_model_len=131072),
    "an encoder": question(whisper(), 3, max_model_len=448, max_num_batched_tokens=1500),
    "latent": question(latent(61, 512, 64), 30, tensor_parallel=8, capability=90),
    "latent in FP8": question(latent(61, 512, 64), 30, kv_cache_dtype="fp8", capability=90),
    "latent, 4 stages": question(latent(61, 512, 64), 7, pipeline_parallel=4),
    "sparse": question(latent(61, 512, 64, index=128), 30, kv_cache_dtype="fp8_ds_mla"),
    "sparse, 2 stages": question(latent(61, 512, 64, index=128), 30, kv_cache_dtype="fp8_ds_mla", pipeline_parallel=2),
    "compressed": question(deepseek_v4_flash(), 7.7, kv_cache_dtype="fp8"),
    "compressed, too little": question(deepseek_v4_flash(), 2, kv_cache_dtype="fp8"),
    "states": question(QWEN36_35B, 5.98, kv_cache_dtype="fp8"),
    "states, prefixes not kept": question(QWEN36_35B, 5.98, prefix_caching=False),
    "states and a draft": question(QWEN36_27B, 11.05, kv_cache_dtype="fp8_e5m2", tensor_parallel=2, **DRAFT),
    "states, 2 stages": question(QWEN36_27B, 4, pipeline_parallel=2),
    "states, scales by token and head": question(QWEN36_27B, 9, kv_cache_dtype="int8_per_token_head", **DRAFT),
}  # fmt: skip
