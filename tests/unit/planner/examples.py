"""A checkpoint and hosts to plan for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.checkpoints import Checkpoint, Problem, Quantization, describe
from onecat.facts import Facts, Gpu, Nvidia

LLAMA = Checkpoint(
    directory="/srv/models/llama-8b",
    architecture=describe(
        {
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
    ),
    weight_bytes=16_060_522_496,
    parameters=8_030_261_248,
    files=("model.safetensors",),
)


def llama(
    quantization: str | None = None,
    format: str | None = None,
    kv: str | None = None,
    problems: tuple[Problem, ...] = (),
    **fields: Any,
) -> Checkpoint:
    """LLAMA with other fields of its architecture, or stored by a method, in a format, with a KV cache it asks for."""
    claimed = None
    if quantization is not None or kv is not None:
        method = quantization or "compressed-tensors"
        claimed = Quantization(format or method, method, method, format, kv_cache=kv)
    return replace(LLAMA, architecture=LLAMA.architecture.replaced(**fields), quantization=claimed, problems=problems)


V100 = "Tesla V100-PCIE-32GB"


def host(*gpus: tuple[str, str]) -> Facts:
    """A host with GPUs, each a name and a compute capability."""
    rows = tuple(Gpu(index, name, compute_capability=capability) for index, (name, capability) in enumerate(gpus))
    return Facts("gpu1", nvidia=Nvidia(library_found=True, gpus=rows))
