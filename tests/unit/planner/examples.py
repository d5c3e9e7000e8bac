"""A checkpoint and hosts to plan for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.checkpoints import Checkpoint, Problem, Quantization, describe
from onecat.facts import Facts, Gpu, Nvidia

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3"},
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}

LLAMA = Checkpoint(
    directory="/srv/models/llama-8b",
    architecture=describe(CONFIG),
    weight_bytes=16_060_522_496,
    parameters=8_030_261_248,
    files=("model.safetensors",),
)


SMALL = replace(LLAMA, architecture=describe({**CONFIG, "num_hidden_layers": 8}), weight_bytes=5_600_000_000)
"""A quarter of its layers: fits a card with 16 GB."""


def checkpoint_of(**fields: Any) -> Checkpoint:
    """A checkpoint known by its config.json alone: LLAMA's with other fields."""
    described = describe({**CONFIG, **fields})
    return Checkpoint("/srv/models/other", described, weight_bytes=2 * described.parameters, measured=False)


def llama(
    quantization: str | None = None,
    format: str | None = None,
    kv: str | None = None,
    problems: tuple[Problem, ...] = (),
    small: bool = False,
    **fields: Any,
) -> Checkpoint:
    """LLAMA with other fields of its architecture, or stored by a method, in a format, with a KV cache it asks for."""
    claimed = None
    if quantization is not None or kv is not None:
        method = quantization or "compressed-tensors"
        claimed = Quantization(format or method, method, method, format, kv_cache=kv)
    base = SMALL if small else LLAMA
    return replace(base, architecture=base.architecture.replaced(**fields), quantization=claimed, problems=problems)


V100 = "Tesla V100-PCIE-32GB"


def host(*gpus: tuple[str, str]) -> Facts:
    """A host with GPUs, each a name and a compute capability."""
    rows = tuple(Gpu(index, name, compute_capability=capability) for index, (name, capability) in enumerate(gpus))
    return Facts("gpu1", nvidia=Nvidia(library_found=True, gpus=rows))
