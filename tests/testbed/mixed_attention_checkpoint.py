"""A tiny checkpoint of Gemma 4's kind: layers of two head sizes, sliding windows, and layers that share a KV cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy

from tests.safetensors_files import write_safetensors

SLIDING_HEAD_SIZE, GLOBAL_HEAD_SIZE = 256, 512  # those of the public checkpoints
WINDOW = 32
HIDDEN, INTERMEDIATE, VOCABULARY = 64, 128, 258
HEADS, KV_HEADS, LAYERS = 4, 2, 4
# transformers 5.24 keeps head sizes by layer and drops the key that vLLM 0.27.1 reads.
OVERRIDES = {"allow_global_per_layer_attribute_access": True, "global_head_dim": GLOBAL_HEAD_SIZE}


def write(folder: Path, seed: int = 1) -> Path:
    """Write it and return the folder; two layers of each kind, the later two of which share the earlier ones' cache."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(_config(), indent=1), encoding="utf-8")
    random = numpy.random.default_rng(seed)
    tensors = {}
    for name, shape in _shapes().items():
        # Small embeddings: what attention adds to them decides the answers.
        spread = 0.03 if "embed" in name else shape[-1] ** -0.5
        values = numpy.ones(shape) if len(shape) == 1 else random.normal(0, spread, shape)
        tensors[name] = ("F16", shape, values.astype(numpy.float16).tobytes())
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    return folder


def _config() -> dict[str, Any]:
    return {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "dtype": "float16",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": SLIDING_HEAD_SIZE,
        "global_head_dim": GLOBAL_HEAD_SIZE,
        "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
        "num_kv_shared_layers": LAYERS // 2,
        "sliding_window": WINDOW,
        "hidden_size_per_layer_input": 0,
        "vocab_size": VOCABULARY,
        "vocab_size_per_layer_input": VOCABULARY,
        "max_position_embeddings": 1024,
        "attention_k_eq_v": False,
        "use_double_wide_mlp": False,
        "enable_moe_block": False,
    }


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for number in range(LAYERS):
        layer, size = f"model.layers.{number}", (SLIDING_HEAD_SIZE, GLOBAL_HEAD_SIZE)[number % 2]
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (HEADS * size, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": (KV_HEADS * size, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": (KV_HEADS * size, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": (HIDDEN, HEADS * size),
            f"{layer}.self_attn.q_norm.weight": (size,),
            f"{layer}.self_attn.k_norm.weight": (size,),
            f"{layer}.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{layer}.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{layer}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        }
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            shapes[f"{layer}.{norm}_layernorm.weight"] = (HIDDEN,)
    return shapes | {"model.norm.weight": (HIDDEN,)}
