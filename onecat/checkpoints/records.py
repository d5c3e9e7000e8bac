"""What is known of a checkpoint without loading a weight."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something that will stop or spoil serving. `where` is the file; `code` is stable."""

    code: str
    text: str
    where: str
    fix: str


@dataclass(frozen=True)
class Checkpoint:
    """One model directory.

    dtype: as in config.json (`bfloat16`); quantization: the method that config.json or hf_quant_config.json claims,
    by the engines' name for it, or None; quantization_format: its `format`, as compressed-tensors has one;
    kv_cache_quantization: what the engine makes of `kv-cache-dtype: auto` because the checkpoint asks for it (`fp8`);
    rope_type: how config.json says that positions are stretched (`yarn`, `linear`), "several" when layers differ, or
    None; weight_bytes: bytes of all tensors; parameters: number of stored tensor elements (packed ones count once).
    """

    directory: str
    architecture: str | None = None
    model_type: str | None = None
    dtype: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    attention_heads: int | None = None
    key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int | None = None
    rope_type: str | None = None
    vocabulary_size: int | None = None
    quantization: str | None = None
    quantization_format: str | None = None
    kv_cache_quantization: str | None = None
    weight_bytes: int = 0
    parameters: int = 0
    files: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
