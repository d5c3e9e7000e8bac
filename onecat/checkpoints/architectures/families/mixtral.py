"""Mixtral, MiniMax-M2 and their kind: numbered experts in every layer, nothing shared."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.mixtures import numbered_experts, router, score_correction
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
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
        normed=configuration.flag("use_qk_norm", True),
        corrected=configuration.flag("use_routing_bias", True),
    )


def _numbered(configuration: Configuration, *, normed: bool = False, corrected: bool = False) -> Architecture:
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    grouped = GroupedAttention.of(configuration)
    count, inner = configuration.positive("num_local_experts"), configuration.positive("intermediate_size")

    def attention(name: str, layer: int) -> Iterator[Weight]:
        return grouped.weights(
            f"{name}.self_attn", layer, bias=configuration.flag("attention_bias"),
            query_key_norm="all" if normed else None,
        )  # fmt: skip

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
        (grouped.cache(every, window),),
        Experts(every, count, configuration.positive("num_experts_per_tok"), inner),
    )
