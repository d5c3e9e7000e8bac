"""Checkpoints, cards and settings to compute with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.checkpoints import Checkpoint, describe, read_quantization
from onecat.planner.memory import Device, MemorySettings, resolved_settings
from onecat.planner.memory.stages import Stage

GIB = 2**30
V100 = Device("Tesla V100-PCIE-32GB", 32 * GIB, 0, 70)
A100 = Device("NVIDIA A100-SXM4-80GB", 80 * GIB, 0, 80)
L40S = Device("NVIDIA L40S", 45 * GIB, 0, 89)
RTX3090 = Device("NVIDIA GeForce RTX 3090", 24 * GIB, 0, 86)
H200 = Device("NVIDIA H200", 140 * GIB, 0, 90)
B200 = Device("NVIDIA B200", 180 * GIB, 0, 100)

SMALL: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}
"""A Qwen3 of four layers, whose vocabulary is no multiple of 64."""

MIXED = SMALL | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "decoder_sparse_step": 1,
}

FP8_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
NVFP4 = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "float",
                "strategy": "tensor_group",
                "group_size": 16,
                "symmetric": True,
            },
            "input_activations": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
        }
    },
}


def checkpoint(config: dict[str, Any], **fields: Any) -> Checkpoint:
    """The checkpoint that a config.json describes, without weight files."""
    whole = {**config, **fields}
    return Checkpoint("model", describe(whole), read_quantization({"config.json": whole}))


def settings(of: Checkpoint, device: Device = H200, version: str = "0.27.1", **flags: Any) -> MemorySettings:
    """Settings by flags, with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return resolved_settings(named, of.architecture, device, version)


def only(of: Checkpoint, *words: str) -> Checkpoint:
    """The checkpoint with only those weights whose names have one of the words, and no tables of sines."""
    kept = tuple(each for each in of.architecture.weights if any(word in each.name for word in words))
    return replace(of, architecture=of.architecture.replaced(weights=kept, max_position_embeddings=0))


ALL = Stage(range(4), True, True)
