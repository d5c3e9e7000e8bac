"""A tiny Llama-architecture checkpoint with a byte-level tokenizer, made on the spot.

`quickstart` and the tests need a checkpoint that a real vLLM loads in seconds without a download. The weights are
random, so its answers are noise: it proves the path from checkpoint to HTTP response and nothing about quality.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

END_OF_TEXT = "<|end|>"
START_OF_TURN = "<|start|>"


@dataclass(frozen=True)
class TinyShape:
    """Sizes of the tiny model; the defaults give 1.1 million parameters (4.4 MB in float32)."""

    hidden_size: int = 128
    intermediate_size: int = 384
    layers: int = 4
    attention_heads: int = 4
    key_value_heads: int = 2
    head_dim: int = 32
    max_position_embeddings: int = 2048


def byte_alphabet() -> list[str]:
    """The 256 printable characters by which byte-level BPE tokenizers write the 256 bytes, in byte order.

    Source: the GPT-2 byte-to-unicode rule, which the `ByteLevel` component of Hugging Face tokenizers follows:
    printable Latin-1 bytes stand for themselves, the others are moved to code points from 256 upwards.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet, moved = [], 0
    for byte in range(256):
        if byte in printable:
            alphabet.append(chr(byte))
        else:
            alphabet.append(chr(256 + moved))
            moved += 1
    return alphabet


def tokenizer_files() -> dict[str, Any]:
    """The tokenizer as JSON documents by file name: 256 bytes and two special tokens, no merges."""
    special = [START_OF_TURN, END_OF_TEXT]
    vocabulary = {token: index for index, token in enumerate([*byte_alphabet(), *special])}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = [
        {
            "id": vocabulary[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in special
    ]
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": vocabulary,
                "merges": [],
            },
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": START_OF_TURN,
            "eos_token": END_OF_TEXT,
            "pad_token": END_OF_TEXT,
            "model_max_length": TinyShape.max_position_embeddings,
            "clean_up_tokenization_spaces": False,
            "chat_template": "{% for message in messages %}"
            + START_OF_TURN
            + "{{ message.role }}: {{ message.content }}"
            + END_OF_TEXT
            + "{% endfor %}{% if add_generation_prompt %}"
            + START_OF_TURN
            + "assistant: {% endif %}",
        },
    }


def model_config(shape: TinyShape) -> dict[str, Any]:
    """config.json of a Llama model of this shape, in the field names that transformers and vLLM read."""
    vocabulary_size = 258
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.attention_heads,
        "num_key_value_heads": shape.key_value_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_position_embeddings,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": vocabulary_size,
        "bos_token_id": vocabulary_size - 2,
        "eos_token_id": vocabulary_size - 1,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }


def tensor_shapes(shape: TinyShape) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint with its shape ([out_features, in_features] for linear weights)."""
    query, key_value = shape.attention_heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    hidden, inner = shape.hidden_size, shape.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (258, hidden)}
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (query, hidden),
            prefix + "self_attn.k_proj.weight": (key_value, hidden),
            prefix + "self_attn.v_proj.weight": (key_value, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, query),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "mlp.gate_proj.weight": (inner, hidden),
            prefix + "mlp.up_proj.weight": (inner, hidden),
            prefix + "mlp.down_proj.weight": (hidden, inner),
        }
    return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (258, hidden)}


def write_tiny_checkpoint(directory: Path, shape: TinyShape = TinyShape(), seed: int = 1) -> Path:
    """Write the checkpoint into `directory` (made when absent); the same seed gives the same bytes.

    Returns the directory. Raises OSError when it cannot be written.
    """
    import numpy
    from safetensors.numpy import save_file

    random = numpy.random.default_rng(seed)
    tensors = {
        name: numpy.ones(size, numpy.float32)
        if len(size) == 1
        else random.normal(0.0, 0.3 if "embed" in name or "lm_head" in name else size[1] ** -0.5, size).astype(
            numpy.float32
        )
        for name, size in tensor_shapes(shape).items()
    }
    directory.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": model_config(shape),
        "generation_config.json": {"bos_token_id": 256, "eos_token_id": 257, "temperature": 1.0},
        **tokenizer_files(),
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial = directory / "model.safetensors.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    # save_file makes it readable for its owner alone; a server in a container runs as another user.
    partial.chmod((directory / "config.json").stat().st_mode)
    partial.replace(directory / "model.safetensors")
    return directory
