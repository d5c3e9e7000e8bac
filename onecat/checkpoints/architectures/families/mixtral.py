"""Mixtral, MiniMax-M2 and their kind: numbered experts in every layer, nothing shared."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.mixtures import numbered_experts, router, score_correction
from onecat.checkpoints.architectures.records import Architecture, Experts, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("MixtralForCausalLM")
def mixtral(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_mixtral.py."""
    return _numbered(configuration)


@family("MiniMaxM2ForCausalLM")
def minimax_m2(configuration: Configuration) -> Architecture:
    """With a norm over all heads of q and of k together. Layers for speculation are configured, and not published.

    Source: vllm 0.27.1, vllm/model_executor/models/minimax_m2.py.
    """
    return _numbered(
        configuration,
        norms=configuration.flag("use_qk_norm", True),
        corrected=configuration.flag("use_routing_bias", True),
    )


def _numbered(configuration: Configuration, *, norms: bool = False, corrected: bool = False) -> Architecture:
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    heads = configuration.positive("num_attention_heads")
    key_value_heads = configuration.positive("num_key_value_heads", default=heads)
    head = configuration.positive("head_dim", default=hidden // heads)
    count, inner = configuration.positive("num_local_experts"), configuration.positive("intermediate_size")

    def attention(name: str, layer: int) -> Iterator[Weight]:
        bias = configuration.flag("attention_bias")
        yield from weights.attention(f"{name}.self_attn", layer, hidden, heads, key_value_heads, head, bias=bias)
        if norms:
            yield weights.norm(f"{name}.self_attn.q_norm", heads * head, layer)
            yield weights.norm(f"{name}.self_attn.k_norm", key_value_heads * head, layer)

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        yield from router(f"{name}.block_sparse_moe.gate", count, hidden, layer)
        if corrected:
            yield score_correction(f"{name}.block_sparse_moe", count, layer)
        yield from numbered_experts(f"{name}.block_sparse_moe.experts", layer, hidden, inner, count)

    every = tuple(range(layers))
    window = configuration.optional("sliding_window")
    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (KeyValueLayers(every, heads, key_value_heads, head, head, window),),
        Experts(every, count, configuration.positive("num_experts_per_tok"), inner),
    ).replaced(head_size=head)
