"""Dense decoders with Llama's names: Llama, Mistral, Qwen2, Qwen3."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.records import Architecture, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family

QUERY_KEY_NORM = ("Qwen3ForCausalLM",)
BIASED = ("Qwen2ForCausalLM",)
"""Classes whose q, k and v have a bias without config.json saying so."""


@family("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
def llama(configuration: Configuration) -> Architecture:
    """One kind of layer throughout.

    Source: transformers' modeling_llama.py, modeling_qwen2.py and modeling_qwen3.py (names and shapes of parameters).
    """
    base = common(configuration)
    heads, layers = configuration.integer("num_attention_heads"), configuration.integer("num_hidden_layers")
    hidden = configuration.integer("hidden_size")
    key_value_heads = configuration.integer("num_key_value_heads", default=heads)
    head = configuration.integer("head_dim", default=hidden // heads)
    window = configuration.optional("sliding_window") if configuration.flag("use_sliding_window", True) else None

    def all_weights() -> Iterator[Weight]:
        yield from weights.embeddings("model.", configuration.integer("vocab_size"), hidden, base.tied_embeddings)
        for layer in range(layers):
            prefix = f"model.layers.{layer}"
            yield weights.norm(f"{prefix}.input_layernorm", hidden, layer)
            yield from weights.attention(
                f"{prefix}.self_attn", layer, hidden, heads, key_value_heads, head,
                bias=base.name in BIASED or configuration.flag("attention_bias"),
                output_bias=base.name not in BIASED and configuration.flag("attention_bias"),
                query_key_norm=base.name in QUERY_KEY_NORM,
            )  # fmt: skip
            yield weights.norm(f"{prefix}.post_attention_layernorm", hidden, layer)
            yield from weights.gated_mlp(f"{prefix}.mlp", layer, hidden, configuration.integer("intermediate_size"))
        yield weights.norm("model.norm", hidden)

    kept = KeyValueLayers(tuple(range(layers)), heads, key_value_heads, head, head, window)
    return base.replaced(caches=(kept,), weights=tuple(all_weights()))
