"""What the engine is known to refuse, found before it is started.

Each rule takes the `Situation` and yields refusals; `RULES` lists them. A rule that lacks a fact stays silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from onecat.checkpoints import Checkpoint
from onecat.config import Profile
from onecat.engines import FlagSchema, parse_size
from onecat.knowledge.ascend import ascend_chip
from onecat.planner.flags import Setting
from onecat.planner.records import Layout, Refusal

FP8_KV_CAPABILITY = 89
"""Least compute capability, ten times, for an FP8 KV cache in Triton attention (vllm triton_attn.py:518)."""

FLASH_ATTENTION_CAPABILITY = 80
"""Least compute capability, ten times, of FLASH_ATTN and FLASHINFER (vllm flash_attn.py:201, flashinfer.py:462)."""

BFLOAT16_CAPABILITY = 80
"""Least compute capability, ten times, for bfloat16 (vllm platforms/cuda.py:232)."""

COMPRESSED_TENSORS_CAPABILITY = dict.fromkeys(
    ("pack-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized"), 75
)
"""Least compute capability, ten times, of the schemes behind each `format` of compressed-tensors; the method as a whole
states less (get_min_capability in vllm .../quantization/compressed_tensors/schemes/)."""

UNSTRETCHED_ROPE = (None, "default", "su", "longrope", "llama3")
"""Rope types with which max_position_embeddings is the longest context (vllm config/model.py:2314)."""


@dataclass(frozen=True)
class Situation:
    """All that a rule may look at.

    capability: compute capability, ten times, of the weakest GPU; None without a GPU. gpus: GPUs the host is known to
    have, None when that is not known; npus likewise, for profiles that use them. hosts: that share the layout by Ray.
    """

    schema: FlagSchema
    settings: Mapping[str, Setting]
    environment: Mapping[str, str]
    profile: Profile
    checkpoint: Checkpoint
    layout: Layout
    capability: int | None
    gpus: int | None
    npus: int | None = None
    hosts: int = 1

    def value(self, name: str) -> object:
        """The value of a flag: as set, or else the engine's default."""
        setting = self.settings.get(name)
        return setting.value if setting is not None else self.schema.default(name)


def longest_context(checkpoint: Checkpoint) -> int | None:
    """The longest context the checkpoint's own configuration allows, when it can be told without the engine."""
    described = checkpoint.architecture
    return described.max_position_embeddings if described.rope_type in UNSTRETCHED_ROPE else None


def refusals(situation: Situation) -> tuple[Refusal, ...]:
    """Everything the engine would refuse."""
    return tuple(refusal for rule in RULES for refusal in rule(situation))


def _length(at: Situation) -> Iterator[Refusal]:
    limit = longest_context(at.checkpoint)
    wanted = at.value("max-model-len")
    length = parse_size(wanted) if isinstance(wanted, (int, str)) else None
    allowed = at.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1" or "hf-overrides" in at.settings
    if limit is not None and length is not None and length > limit and not allowed:
        yield Refusal(
            "max-model-len",
            f"max-model-len {wanted} is above the checkpoint's max_position_embeddings of {limit}",
            (f"max-model-len: {limit}",),
        )


def _ranges(at: Situation) -> Iterator[Refusal]:
    share = at.value("gpu-memory-utilization")
    if isinstance(share, (int, float)) and not 0 < share <= 1:
        yield Refusal(
            "gpu-memory-utilization",
            f"gpu-memory-utilization is {share}; it is a share above 0 and at most 1 (vllm config/cache.py:68)",
            ("gpu-memory-utilization: 0.9",),
        )
    length = at.value("max-model-len")
    if isinstance(length, int) and (length < -1 or length == 0):
        yield Refusal(
            "max-model-len",
            f"max-model-len is {length}, and no context has that length",
            ("leave max-model-len out: the engine reads it from the checkpoint",),
        )


def _heads(at: Situation) -> Iterator[Refusal]:
    heads, parts = at.checkpoint.architecture.attention_heads, at.layout.tensor_parallel
    if heads is not None and heads % parts:
        fitting = [str(each) for each in range(1, heads + 1) if heads % each == 0 and each <= 16]
        yield Refusal(
            "tensor-parallel-heads",
            f"the checkpoint's {heads} attention heads cannot be divided among {parts} GPUs",
            (f"tensor-parallel-size: one of {', '.join(fitting)}",),
        )


def _layout(at: Situation) -> Iterator[Refusal]:
    for name in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"):
        value = at.value(name)
        if isinstance(value, int) and value < 1:
            yield Refusal("layout", f"{name} is {value}, and cannot be below 1", (f"{name}: 1",))


def _gpus(at: Situation) -> Iterator[Refusal]:
    needed = -(-at.layout.tensor_parallel * at.layout.pipeline_parallel * at.layout.replicas // at.hosts)
    if at.profile.hardware.accelerator == "nvidia" and at.gpus is not None and needed > at.gpus:
        yield Refusal(
            "not-enough-gpus",
            f"the layout needs {needed} GPU{'s' if needed > 1 else ''} and the host has {at.gpus}",
            (
                f"tensor-parallel-size: {at.gpus}" if at.gpus else "choose a host with the GPUs of the profile",
                "onecat doctor",
            ),
        )


def _npus(at: Situation) -> Iterator[Refusal]:
    needed = at.layout.tensor_parallel * at.layout.pipeline_parallel * at.layout.replicas
    if at.npus is not None and needed > at.npus:
        yield Refusal(
            "not-enough-npus",
            f"the layout needs {needed} NPU{'s' if needed > 1 else ''} and the host has {at.npus}",
            ("write a smaller tensor-parallel-size under serve", "onecat doctor"),
        )


def _fp8_on_ascend(at: Situation) -> Iterator[Refusal]:
    """No NPU of the profile's names has FP8 unless the table of chips says so."""
    chips = [ascend_chip(name) for name in at.profile.hardware.gpu_names]
    if at.profile.hardware.accelerator != "ascend" or not chips or any(chip is None or chip.fp8 for chip in chips):
        return
    names = f"Ascend {at.profile.hardware.gpu_names[0]}"
    found = at.checkpoint.quantization
    stored = None if found is None else found.format or found.method
    if at.value("quantization") == "fp8" or stored in ("fp8", "float-quantized"):
        yield Refusal(
            "quantization-fp8-ascend",
            f"the weights are FP8, and {names} has no path for them",
            ("serve a W8A8 or BF16 checkpoint of the model",),
        )
    if str(at.value("kv-cache-dtype")).startswith("fp8"):
        yield Refusal("kv-cache-dtype-fp8", f"{names} has no FP8 KV cache", ("kv-cache-dtype: auto",))


def _bfloat16(at: Situation) -> Iterator[Refusal]:
    if at.capability is None or at.capability >= BFLOAT16_CAPABILITY:
        return
    for name in ("dtype", "kv-cache-dtype"):
        if at.value(name) == "bfloat16":
            yield Refusal(
                f"{name}-bfloat16",
                f"{name} bfloat16 needs compute capability 8.0; the card has {_told(at.capability)}",
                (f"{name}: float16",),
            )


def _float16(at: Situation) -> Iterator[Refusal]:
    kind = at.checkpoint.architecture.model_type
    if kind in at.schema.float16_refused and at.value("dtype") in ("float16", "half"):
        better = "float32" if (at.capability or BFLOAT16_CAPABILITY) < BFLOAT16_CAPABILITY else "bfloat16"
        yield Refusal(
            "dtype-float16",
            f"the engine refuses float16 for model type {kind}: its values overflow",
            (f"dtype: {better}",),
        )


def _kv_cache_dtype(at: Situation) -> Iterator[Refusal]:
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
    if capability is None or capability >= FP8_KV_CAPABILITY or not str(asked or value).startswith("fp8"):
        return
    # From 8.0 on the attention backend decides; below there is only Triton's.
    if capability < FLASH_ATTENTION_CAPABILITY or at.value("attention-backend") == "TRITON_ATTN":
        yield Refusal(
            "kv-cache-dtype-fp8",
            f"an FP8 KV cache in Triton attention needs compute capability 8.9; the card has {_told(capability)}"
            + (", and the checkpoint asks for one" if asked else ""),
            ("kv-cache-dtype: float16" if asked or _kv_cache_asked(at) else "kv-cache-dtype: auto",),
        )


def _kv_cache_asked(at: Situation) -> str | None:
    """What the checkpoint makes of `kv-cache-dtype: auto`."""
    return None if at.checkpoint.quantization is None else at.checkpoint.quantization.kv_cache


def _quantization(at: Situation) -> Iterator[Refusal]:
    asked, found = at.value("quantization"), at.checkpoint.quantization
    stored, form = (None, None) if found is None else (found.method, found.format)
    known = at.schema.quantization
    methods = [each for each in known if "/" not in each]
    if at.schema.unknown is not None:
        return
    if isinstance(asked, str) and asked not in known:
        yield Refusal(
            "quantization-unknown",
            f"{at.schema.family} {at.schema.version} has no quantization method {asked}",
            ("leave quantization out: the engine reads it from the checkpoint", f"one of: {', '.join(methods)}"),
        )
        return
    if stored is not None and asked is None and stored not in known:
        yield Refusal(
            "quantization-unknown",
            f"the checkpoint is quantized with {stored}, which {at.schema.family} {at.schema.version} does not read",
            (f"take a checkpoint in one of: {', '.join(methods)}",),
        )
        return
    if asked == "fp8" and stored == "compressed-tensors":
        yield Refusal(
            "quantization-mismatch",
            "quantization fp8 is asked for and the checkpoint is in compressed-tensors format",
            ("leave quantization out: the engine reads it from the checkpoint",),
        )
        return
    method = asked if isinstance(asked, str) else stored
    least = known.get(method) if method is not None else None
    if method == "compressed-tensors" and form is not None:
        least = COMPRESSED_TENSORS_CAPABILITY.get(form, least)
        least = known.get(f"{method}/{form}", least)
    if at.capability is not None and least is not None and at.capability < least:
        yield Refusal(
            "quantization-capability",
            f"quantization {method} needs compute capability {_told(least)}; the card has {_told(at.capability)}",
            ("take a checkpoint in float16, or in a method the card can run",),
        )


def _checkpoint(at: Situation) -> Iterator[Refusal]:
    for problem in at.checkpoint.problems:
        yield Refusal(f"checkpoint.{problem.code}", f"{problem.where} {problem.text}", (problem.fix,))


def _told(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


RULES: tuple[Callable[[Situation], Iterator[Refusal]], ...] = (
    _checkpoint,
    _length,
    _ranges,
    _layout,
    _heads,
    _gpus,
    _npus,
    _fp8_on_ascend,
    _bfloat16,
    _float16,
    _kv_cache_dtype,
    _quantization,
)
