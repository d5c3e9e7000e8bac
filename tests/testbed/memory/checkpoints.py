"""Tiny checkpoints of several architectures, with random weights of the names and shapes that onecat describes.

That a real engine loads them proves names and shapes as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from onecat.checkpoints import describe
from onecat.checkpoints.architectures import Weight
from onecat.checkpoints.tiny import tokenizer_files
from tests.safetensors_files import write_safetensors

COMMON: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 258,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}
EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
    },
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 8,
        "sliding_window": 256,
        "layer_types": [*["sliding_attention"] * 5, "full_attention", *["sliding_attention"] * 2],
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
    },
    "qwen3-moe": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", **EXPERTS},
    "mixtral": {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 3,
    },
    "qwen3-next": {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        **EXPERTS,
        "shared_expert_intermediate_size": 64,
        "num_hidden_layers": 8,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 2,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "partial_rotary_factor": 0.5,
    },
    "deepseek-v2": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_key_value_heads": 4,
        "kv_lora_rank": 32,
        "q_lora_rank": None,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 32,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
    },
}
"""What differs from COMMON, by a name of the checkpoint."""


def write_checkpoint(name: str, directory: Path) -> Path:
    """Write one of CONFIGURATIONS, the same bytes each time. Returns the directory."""
    configuration = {**COMMON, **CONFIGURATIONS[name]}
    architecture = describe(configuration)
    assert architecture.estimated is None, architecture.estimated
    random = numpy.random.default_rng(1)
    tensors = {}
    for tensor, shape in _tensors(architecture.weights):
        values = random.normal(0.0, 0.05, shape).astype(numpy.float32)
        tensors[tensor] = "BF16", shape, (values.view(numpy.uint32) >> 16).astype("<u2").tobytes()
    directory.mkdir(parents=True)
    write_safetensors(directory / "model.safetensors", tensors)
    for file, document in {"config.json": configuration, **tokenizer_files()}.items():
        (directory / file).write_text(json.dumps(document), encoding="utf-8")
    return directory


def _tensors(weights: tuple[Weight, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each tensor of the file with its shape."""
    for weight in weights:
        if "*" in weight.name:
            yield from ((weight.name.replace("*", str(index)), weight.shape) for index in range(weight.count))
        else:
            assert weight.count == 1, weight
            yield weight.name, weight.shape
