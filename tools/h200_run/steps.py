"""What the steps of the engine runs have in common: folders, models, arguments and environments of vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from generate import CLEAR_PIECES, LONG_PIECES, SHORT_PIECES
from scheduling import Step

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parents[1]
WORK = Path(os.environ.get("H200_WORK", "/tmp/h200"))
SITE = Path("/tmp/site")
"""Where the bundle's own script unpacks the wheels of vLLM and of what it requires."""
GEMMA = WORK / "gemma"
HELD_OUT = ROOT / "models" / "small" / "held_out.txt"
CAPTURED = WORK / "captured"

FORCED = {"VLLM_VOLTA_FORCE": "1"}
QUAD_PAIRS = {**FORCED, "VLLM_VOLTA_FRAGMENTS": "quad-pairs"}
UPSTREAM = {"VLLM_VOLTA_DISABLE": "1"}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "OMP_NUM_THREADS": "2",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # Symmetric memory may use NVLink multicast, which the machine's makers ask to leave off.
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_DEBUG": "INFO",
}
OURS, TRITON = "CUSTOM", "TRITON_ATTN"
"""Attention backends, by the names that vLLM's `attention_backend` knows."""
ENGINE = {
    "dtype": "float16",
    "max_model_len": 8320,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 2048,
    "attention_backend": TRITON,
    "gpu_memory_utilization": 0.08,
    "kv_cache_memory_bytes": 2 << 30,
    "enable_prefix_caching": True,
    "seed": 0,
}
SMALL = {"max_model_len": 1024, "kv_cache_memory_bytes": 1 << 30}
CUT = {
    "kv_cache_memory_bytes": 4 << 30,
    "limit_mm_per_prompt": {"image": 1, "video": 0},
    "mm_encoder_attn_backend": "TORCH_SDPA",
    "gdn_prefill_backend": "triton",
}
# vLLM's prefix caching of linear attention is experimental, and no part of what is compared here.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "small": SMALL,
    "llama": {},
    "qwen3.6": CUT | {"enable_prefix_caching": False},
    "gemma4": CUT,
}
KINDS: dict[str, dict[str, Any]] = {
    "eager": {"enforce_eager": True},
    "graphs": {"compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32]}},
}
SPECULATIVE = {
    # With 3 drafted tokens each request's step computes 4.
    "compilation_config": {"cudagraph_capture_sizes": [4, 8, 16, 32, 64]},
    "speculative_config": {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 1,
    },
    "disable_log_stats": False,
}
MODELS = {
    **{name: WORK / "models" / name for name in ("small-w4a16", "small-w4a4", "small-fp8")},
    **{name: WORK / "models" / name for name in ("small-plain", "small-fp8-plain")},
    **{name: WORK / "models" / name / "quantised" for name in ("llama-w4a16", "llama-w4a4", "qwen3.6", "gemma4")},
    "llama-plain": WORK / "models" / "llama-w4a16" / "plain",
    "qwen3.6-plain": WORK / "models" / "qwen3.6" / "plain",
    "gemma4-plain": WORK / "models" / "gemma4" / "plain",
}
CLASSES = ("LlamaForCausalLM", "Qwen3_5ForConditionalGeneration", "Gemma4ForConditionalGeneration")
SLOW = 280.0
"""Seconds that the emulated fragments get."""
SMALL_TOKENS = 96
TOKENS = 64
READY = ("overlay", "extension", "small-models")
COMPILED = "compiled-kernels"
HELPFUL = ("inspect", COMPILED)
"""What each engine does for itself, in more time, where these steps of `prepare` failed."""
MADE_BY = {"llama-plain": "make-llama-w4a16", "qwen3.6-plain": "make-qwen3.6", "gemma4-plain": "make-gemma4"}


@cache
def gpus() -> int:
    """How many GPUs are there by nvidia-smi; 0 without it."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return 0
    return listed.count("GPU ")


def needed(model: str) -> list[str]:
    """The steps of `prepare` that a run of the model needs."""
    return [*READY] if model.startswith("small") else [*READY, MADE_BY.get(model, f"make-{model}")]


def family(model: str) -> str:
    """Which of the models of ARGUMENTS it is a copy of."""
    return next(name for name in ARGUMENTS if model.startswith(name))


def generating(
    name: str,
    model: str,
    environment: Mapping[str, str],
    *,
    reference: str | Mapping[str, tuple[str, str]] | None = None,
    gpu: int | None = 0,
    arguments: Mapping[str, Any] | None = None,
    kinds: Mapping[str, Mapping[str, Any]] | None = None,
    is_short: bool = False,
    limit: float = 300.0,
) -> Step:
    """A step of generate.py: engines of a model, one of each kind, one after the other.

    reference: the step whose engines of the same kind it is compared with; or for each kind a step and its kind. gpu:
    modulo the number of GPUs; None: all of them. kinds: arguments of each (KINDS). is_short: short prompts only.
    """
    kinds = KINDS if kinds is None else kinds
    base = {"model": str(MODELS[model]), **ENGINE, **ARGUMENTS[family(model)], **(arguments or {})}
    is_small = family(model) == "small"
    pieces = SHORT_PIECES if is_short else CLEAR_PIECES if is_small else (*CLEAR_PIECES, *LONG_PIECES)
    references = {kind: (reference, kind) for kind in kinds} if isinstance(reference, str) else dict(reference or {})
    job = {
        "engines": {kind: {**base, **more} for kind, more in kinds.items()},
        "references": references,
        "held_out": str(HELD_OUT),
        "pieces": pieces,
        "tokens": SMALL_TOKENS if is_small else TOKENS,
    }
    own_transformers = {"PYTHONPATH": f"{GEMMA}:{SITE}"} if family(model) == "gemma4" else {}
    return Step(
        name,
        [sys.executable, f"{TOOLS}/generate.py", written(name, job), str(WORK / "results" / f"{name}.json")],
        engine_environment(name, gpu) | own_transformers | environment,
        needs=needed(model),
        after=HELPFUL,
        load=2 if gpu is not None else 4,
        limit=limit,
    )


def engine_environment(name: str, gpu: int | None) -> dict[str, str]:
    """What a process of vLLM needs; what it compiles is its own, what vLLM knows of model classes is shared."""
    place = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu % max(1, gpus()))}
    own = WORK / "caches" / name
    shared = WORK / "caches" / "inspected" / "modelinfos"
    for folder in (own, shared):
        folder.mkdir(parents=True, exist_ok=True)
    if not (own / "modelinfos").exists():
        (own / "modelinfos").symlink_to(shared)
    return ENVIRONMENT | {"PYTHONPATH": str(SITE), "VLLM_CACHE_ROOT": str(own)} | place


def written(name: str, job: Mapping[str, Any]) -> str:
    """Write a job's file; its path."""
    path = WORK / "jobs" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job, indent=1))
    return str(path)


def without_repetition(steps: Iterable[Step]) -> list[Step]:
    """The steps, each name once: groups share those that others are compared with."""
    found: dict[str, Step] = {}
    for step in steps:
        found.setdefault(step.name, step)
    return list(found.values())
