"""From flags as people write them to the settings that the engine resolves them to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from onecat.checkpoints import Architecture
from onecat.checkpoints.architectures import StateLayers
from onecat.engines import BFLOAT16_CAPABILITY, parse_size, served_dtype
from onecat.planner.memory.kv_cache.rules import rules_of
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.runners import runner_of
from onecat.planner.memory.versions import Behaviour, behaviour_of

LARGE_DEVICE = 70 * 2**30
"""Memory from which the engine takes large batches (vllm/engine/arg_utils.py, get_batch_defaults)."""
LARGEST_DEVICE = 160 * 2**30
FLOAT16_REFUSED = ("gemma2", "gemma3", "gemma3_text", "glm4", "plamo2")
"""Model types for which float16 overflows: without bfloat16 `auto` becomes float32 (vllm/config/model.py,
_FLOAT16_NOT_SUPPORTED_MODELS)."""
LONG_PROMPT = 32 * 1024


def resolved_settings(
    flags: Mapping[str, object], architecture: Architecture, device: Device, version: str,
    platform: Literal["cuda", "cpu", "ascend"] = "cuda", flashinfer: bool = False,
) -> MemorySettings:  # fmt: skip
    """What the engine makes of `vllm serve`'s flags on a device.

    Parameters:
        flags: by name (`max-model-len`); None, "auto" and what is not there stand for the engine's default; sizes may
            be words (`32K`).
        device: the first of the replica; the engine asks that one.
        flashinfer: whether it is installed beside the engine.
    """
    behaviour = behaviour_of(version)
    tensor = _integer(flags, "tensor-parallel-size") or 1
    pipeline = _integer(flags, "pipeline-parallel-size") or 1
    length = _size(flags.get("max-model-len")) or architecture.max_position_embeddings or 2048
    old = runner_of(architecture, behaviour, device) == "v0"
    tokens, sequences = _batch_defaults(behaviour, device, platform, tensor * pipeline, old)
    asked_sequences, asked_tokens = _integer(flags, "max-num-seqs"), _size(flags.get("max-num-batched-tokens"))
    sequences = asked_sequences or sequences
    if asked_tokens is not None:
        tokens = asked_tokens
    elif old:
        tokens = _tokens_of_v0(flags, architecture, length, behaviour)
    else:
        if flags.get("enable-chunked-prefill") is False:
            tokens = max(length, tokens)
        tokens = min(tokens, sequences * length)
    if asked_sequences is None and not old:
        sequences = min(sequences, tokens)
    speculative = flags.get("speculative-config")
    drafted = speculative.get("num_speculative_tokens", 0) if isinstance(speculative, Mapping) else 0
    caching = flags.get("enable-prefix-caching")
    hybrid = any(isinstance(each, StateLayers) for each in architecture.caches)
    return MemorySettings(
        engine_version=version,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        max_model_len=length,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        utilization=_number(flags, "gpu-memory-utilization") or behaviour.utilization,
        dtype=resolved_dtype(flags.get("dtype"), architecture, device),
        kv_cache_dtype=str(flags.get("kv-cache-dtype") or "auto"),
        block_size=_integer(flags, "block-size"),
        kv_cache_bytes=_size(flags.get("kv-cache-memory-bytes")),
        blocks=None if (given := _integer(flags, "num-gpu-blocks-override")) is None else max(0, given),
        prefix_caching=caching if isinstance(caching, bool) else not hybrid or rules_of(version).hybrid_prefixes,
        graphs=flags.get("enforce-eager") is not True,
        draft_layers=1 if isinstance(speculative, Mapping) and speculative.get("method") == "mtp" else 0,
        speculative_tokens=drafted if isinstance(drafted, int) else 0,
        text_only=_text_only(flags),
        quantization=_word(flags, "quantization"),
        attention_backend=_word(flags, "attention-backend"),
        expert_parallel=flags.get("enable-expert-parallel") is True,
        platform=platform,
        capability=device.capability,
        hybrid_manager=flags.get("disable-hybrid-kv-cache-manager") is not True,
        async_scheduling=flags.get("async-scheduling") is not False,
        flashinfer=flashinfer,
        encoders_whole=flags.get("mm-encoder-tp-mode") == "data",
    )


def resolved_dtype(asked: object, architecture: Architecture, device: Device) -> str:
    """The data type that weights are held in: as asked, or what `auto` becomes on the device.

    Source: vllm/config/model.py (_resolve_auto_dtype).
    """
    capability = BFLOAT16_CAPABILITY if device.capability is None else device.capability
    return served_dtype(asked, architecture.dtype, architecture.model_type, capability, FLOAT16_REFUSED).dtype


def _batch_defaults(behaviour: Behaviour, device: Device, platform: str, ranks: int, old: bool) -> tuple[int, int]:
    if platform == "cpu":
        return 2048 * ranks, 128 * ranks
    if old:
        return 2048, 256
    if behaviour.batch_largest is not None and device.memory >= LARGEST_DEVICE:
        return behaviour.batch_largest
    is_a100 = "a100" in (device.name or "").lower() and behaviour.a100_is_small
    large = platform == "cuda" and device.memory >= LARGE_DEVICE and not is_a100
    return behaviour.batch_large if large else behaviour.batch_small


def _tokens_of_v0(flags: Mapping[str, object], architecture: Architecture, length: int, behaviour: Behaviour) -> int:
    """Engine v0 takes a whole prompt at once, unless it is chunked: by itself for long contexts of text models.

    Source: vllm/engine/arg_utils.py (create_engine_config) and vllm/config.py (SchedulerConfig) at 0.6.6.
    """
    chunked = flags.get("enable-chunked-prefill")
    if chunked is None:
        windows = any(getattr(each, "window", None) for each in architecture.caches)
        chunked = length > LONG_PROMPT and not windows and not architecture.encoders
    if chunked:
        return behaviour.long_chunk
    return max(length, 5120 if architecture.encoders else 2048)


def _text_only(flags: Mapping[str, object]) -> bool:
    limits = flags.get("limit-mm-per-prompt")
    if flags.get("language-model-only") is True:
        return True
    return isinstance(limits, Mapping) and bool(limits) and all(each == 0 for each in limits.values())


def _integer(flags: Mapping[str, object], name: str) -> int | None:
    value = flags.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(flags: Mapping[str, object], name: str) -> float | None:
    value = flags.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _size(value: Any) -> int | None:
    size = parse_size(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    return size if size is not None and size > 0 else None


def _word(flags: Mapping[str, object], name: str) -> str | None:
    value = flags.get(name)
    return value if isinstance(value, str) and value != "auto" else None
