"""A checkpoint and hosts to plan for."""

from __future__ import annotations

from onecat.checkpoints import Checkpoint
from onecat.facts import Facts, Gpu, Nvidia

LLAMA = Checkpoint(
    directory="/srv/models/llama-8b",
    architecture="LlamaForCausalLM",
    model_type="llama",
    dtype="bfloat16",
    layers=32,
    hidden_size=4096,
    attention_heads=32,
    key_value_heads=8,
    head_dim=128,
    max_position_embeddings=131072,
    rope_type="llama3",
    vocabulary_size=128256,
    weight_bytes=16_060_522_496,
    parameters=8_030_261_248,
    files=("model.safetensors",),
)

V100 = "Tesla V100-PCIE-32GB"


def host(*gpus: tuple[str, str]) -> Facts:
    """A host with GPUs, each a name and a compute capability."""
    rows = tuple(Gpu(index, name, compute_capability=capability) for index, (name, capability) in enumerate(gpus))
    return Facts("gpu1", nvidia=Nvidia(library_found=True, gpus=rows))
