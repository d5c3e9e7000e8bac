"""Configurations of the models that are served: a Llama of 8 layers, and models of today cut to one layer of each kind.

Widths, heads and quantisation are those of the publishers' config.json; the number of layers, the vocabulary and the
depth of the vision tower are cut. Sources:
- Qwen3.6-27B: nvidia/Qwen3.6-27B-NVFP4, config.json as stored in ai-dynamo/aiconfigurator,
  aic-core/src/aiconfigurator_core/model_configs. ModelOpt MIXED_PRECISION: FP8 in attention and linear attention, NVFP4
  without scales of activations in the MLP and the output head.
- Gemma 4 31B: nvidia/Gemma-4-31B-IT-NVFP4, same place. ModelOpt NVFP4 with scales of activations in the MLP; attention
  is not quantised.
Both say that the KV cache is FP8; that is left out, a V100 cannot read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

VOCABULARY = 1152
"""The small model's tokenizer has 1024 tokens; special tokens of the processors follow."""

QWEN36_LEVELS = {"k_norm.weight": 0.5}
"""Attention's scores get a standard deviation of 3 (this norm adds 1 to its weight; the queries' is 2): some tens of
8,000 keys have most of the weight. Far larger ones would leave one key, far smaller ones the mean of all values, which
of random values is nothing."""
GEMMA4_LEVELS = {
    # Scores are not divided by the root of the head size, 256 or 512: as above, 2.6 and 3.6 remain.
    "k_norm.weight": 0.16,
    # Logits get a standard deviation of 4, like those of the other models.
    "embed_tokens.weight": 3.0,
    # What the layers add outweighs the token's own embedding 100 times, which the output head (the same matrix) would
    # else find again: a model that repeats its last token.
    "post_attention_layernorm.weight": 72.0,
    "post_feedforward_layernorm.weight": 72.0,
    "layer_scalar": 0.5,
}


@dataclass(frozen=True)
class Shape:
    """config: config.json without what describes the quantisation; scheme: how the module of a name is quantised
    ("nvfp4", "nvfp4-activations", "fp8" or None); naming: "compressed-tensors" or "modelopt"; vision_tokens: special
    tokens that the processor knows by these names, in the order of their ids from 1024 on; processor: which class of
    transformers prepares images; levels: what norms, scales and embeddings of the language model
    whose names end so are multiplied by (1 else)."""

    config: dict[str, Any]
    scheme: Callable[[str], str | None]
    naming: str
    vision_tokens: Mapping[str, str] = field(default_factory=dict)
    processor: str | None = None
    levels: Mapping[str, float] = field(default_factory=dict)


def llama(scheme: str) -> Shape:
    """All linear layers of 8 layers of 2048 x 8192, as shared/tools/h200/mknv.py makes them."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": VOCABULARY,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float16",
    }
    return Shape(config, lambda name: scheme if ".layers." in name else None, "compressed-tensors")


def qwen36() -> Shape:
    """Three layers of linear attention (GDN) and one of full attention, head size 256; vision tower of two layers."""
    text = {
        "model_type": "qwen3_5_text",
        "attention_bias": False,
        "attn_output_gate": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "dtype": "float16",
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 0,
        "num_attention_heads": 24,
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "output_gate_type": "swish",
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000000,
            "rope_type": "default",
        },
        "tie_word_embeddings": False,
        "vocab_size": VOCABULARY,
    }
    vision = {
        "model_type": "qwen3_5_vision",
        "deepstack_visual_indexes": [],
        "depth": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 1152,
        "in_channels": 3,
        "intermediate_size": 4304,
        "num_heads": 16,
        "num_position_embeddings": 2304,
        "out_hidden_size": 5120,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    tokens = {
        "vision_start_token": "<|vision_start|>",
        "vision_end_token": "<|vision_end|>",
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
    }
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "dtype": "float16",
        "vision_start_token_id": 1024,
        "vision_end_token_id": 1025,
        "image_token_id": 1026,
        "video_token_id": 1027,
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": vision,
    }

    def scheme(name: str) -> str | None:
        if name == "lm_head" or ".mlp." in name and ".layers." in name:
            return "nvfp4"
        fp8 = ("in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj")
        return "fp8" if "language_model.layers." in name and name.endswith(fp8) else None

    return Shape(config, scheme, "modelopt", tokens, "Qwen3VLProcessor", QWEN36_LEVELS)


def gemma4() -> Shape:
    """Two layers of sliding attention (head size 256) and one of full attention (512); vision tower of two layers."""
    text = {
        "model_type": "gemma4_text",
        "attention_bias": False,
        "attention_k_eq_v": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "dtype": "float16",
        "enable_moe_block": False,
        "final_logit_softcapping": 30.0,
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 5376,
        "hidden_size_per_layer_input": 0,
        "intermediate_size": 21504,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
        "max_position_embeddings": 262144,
        "num_attention_heads": 32,
        "num_global_key_value_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 16,
        "num_kv_shared_layers": 0,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 1024,
        "tie_word_embeddings": True,
        "use_bidirectional_attention": "vision",
        "use_double_wide_mlp": False,
        "vocab_size": VOCABULARY,
        "vocab_size_per_layer_input": VOCABULARY,
    }
    vision = {
        "model_type": "gemma4_vision",
        "attention_bias": False,
        "default_output_length": 280,
        "global_head_dim": 72,
        "head_dim": 72,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "max_position_embeddings": 131072,
        "num_attention_heads": 16,
        "num_hidden_layers": 2,
        "num_key_value_heads": 16,
        "patch_size": 16,
        "pooling_kernel_size": 3,
        "position_embedding_size": 10240,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
        "standardize": True,
        "use_clipped_linears": False,
    }
    tokens = {
        "boi_token": "<|image>",
        "eoi_token": "<image|>",
        "image_token": "<|image|>",
        "video_token": "<|video|>",
        "boa_token": "<|audio>",
        "eoa_token": "<audio|>",
        "audio_token": "<|audio|>",
    }
    config = {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "dtype": "float16",
        "audio_config": None,
        "boi_token_id": 1024,
        "eoi_token_id": 1025,
        "image_token_id": 1026,
        "video_token_id": 1027,
        "boa_token_id": 1028,
        "eoa_token_id": 1029,
        "audio_token_id": 1030,
        "tie_word_embeddings": True,
        "text_config": text,
        "vision_config": vision,
        "vision_soft_tokens_per_image": 280,
    }

    def scheme(name: str) -> str | None:
        return "nvfp4-activations" if "language_model.layers." in name and ".mlp." in name else None

    return Shape(config, scheme, "modelopt", tokens, "Gemma4Processor", GEMMA4_LEVELS)


SHAPES: dict[str, Callable[[], Shape]] = {
    "llama-w4a16": lambda: llama("nvfp4"),
    "llama-w4a4": lambda: llama("nvfp4-activations"),
    "qwen3.6": qwen36,
    "gemma4": gemma4,
}
