"""Older decoders with biases throughout: GPT-2 and GPT-NeoX (Pythia)."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.records import Architecture, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family


@family("GPT2LMHeadModel")
def gpt2(configuration: Configuration) -> Architecture:
    """The checkpoint holds matrices as [in, out]; they are given as [out, in] here, as elsewhere.

    Source: transformers' modeling_gpt2.py.
    """
    layers, heads = configuration.integer("n_layer"), configuration.positive("n_head")
    hidden, length = configuration.positive("n_embd"), configuration.positive("n_positions", "n_ctx")
    vocabulary, inner = configuration.positive("vocab_size"), configuration.optional("n_inner") or 4 * hidden
    tied = configuration.ties(True)

    def parameters() -> Iterator[Weight]:
        yield Weight("wte.weight", (vocabulary, hidden), "embedding")
        yield Weight("wpe.weight", (length, hidden), "other")
        for layer in range(layers):
            prefix = f"h.{layer}."
            yield from weights.linear(f"{prefix}attn.c_attn", 3 * hidden, hidden, layer, bias=True)
            yield from weights.linear(f"{prefix}attn.c_proj", hidden, hidden, layer, bias=True)
            yield from weights.linear(f"{prefix}mlp.c_fc", inner, hidden, layer, bias=True)
            yield from weights.linear(f"{prefix}mlp.c_proj", hidden, inner, layer, bias=True)
            yield from weights.norms(prefix, ("ln_1", "ln_2"), hidden, layer, bias=True)
        yield from weights.norms("", ("ln_f",), hidden, bias=True)
        if not tied:
            yield Weight("lm_head.weight", (vocabulary, hidden), "head")

    return _same_heads(configuration, layers, heads, hidden, tuple(parameters())).replaced(
        layers=layers, hidden_size=hidden, intermediate_size=inner, attention_heads=heads,
        max_position_embeddings=length, tied_embeddings=tied,
    )  # fmt: skip


@family("GPTNeoXForCausalLM")
def gpt_neox(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_gpt_neox.py."""
    layers, heads = configuration.integer("num_hidden_layers"), configuration.positive("num_attention_heads")
    hidden, inner = configuration.positive("hidden_size"), configuration.positive("intermediate_size")
    vocabulary, bias = configuration.positive("vocab_size"), configuration.flag("attention_bias", True)

    def parameters() -> Iterator[Weight]:
        yield Weight("gpt_neox.embed_in.weight", (vocabulary, hidden), "embedding")
        for layer in range(layers):
            prefix = f"gpt_neox.layers.{layer}."
            yield from weights.linear(f"{prefix}attention.query_key_value", 3 * hidden, hidden, layer, bias=bias)
            yield from weights.linear(f"{prefix}attention.dense", hidden, hidden, layer, bias=bias)
            yield from weights.linear(f"{prefix}mlp.dense_h_to_4h", inner, hidden, layer, bias=True)
            yield from weights.linear(f"{prefix}mlp.dense_4h_to_h", hidden, inner, layer, bias=True)
            yield from weights.norms(prefix, ("input_layernorm", "post_attention_layernorm"), hidden, layer, bias=True)
        yield from weights.norms("gpt_neox.", ("final_layer_norm",), hidden, bias=True)
        if not configuration.tied:
            yield Weight("embed_out.weight", (vocabulary, hidden), "head")

    return _same_heads(configuration, layers, heads, hidden, tuple(parameters()))


def _same_heads(
    configuration: Configuration, layers: int, heads: int, hidden: int, parameters: tuple[Weight, ...]
) -> Architecture:
    """Every head has keys and values of its own."""
    head = hidden // heads
    kept = KeyValueLayers(tuple(range(layers)), heads, heads, head, head)
    return common(configuration).replaced(key_value_heads=heads, head_size=head, caches=(kept,), weights=parameters)
