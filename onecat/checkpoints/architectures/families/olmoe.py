"""Mixtures with nothing but routed experts in every layer: OLMoE and Granite 3's."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.mixtures import granite_mixture, router, separate_experts
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import Block, sparse_decoder


@family("OlmoeForCausalLM")
def olmoe(configuration: Configuration) -> Architecture:
    """With a norm over all heads of q and of k together.

    Source: transformers' modeling_olmoe.py.
    """
    count, inner = configuration.positive("num_experts"), configuration.positive("intermediate_size")
    hidden = configuration.positive("hidden_size")

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        yield from router(f"{name}.mlp.gate", count, hidden, layer)
        yield from separate_experts(f"{name}.mlp.experts", layer, hidden, inner, count)

    return _routed(configuration, count, inner, feed_forward, normed=True, tied=False)


@family("GraniteMoeForCausalLM")
def granite_moe(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_granitemoe.py."""
    count, inner = configuration.positive("num_local_experts"), configuration.positive("intermediate_size")
    hidden = configuration.positive("hidden_size")

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        return granite_mixture(f"{name}.block_sparse_moe", layer, hidden, inner, count)

    return _routed(configuration, count, inner, feed_forward, normed=False, tied=True)


def _routed(
    configuration: Configuration, count: int, inner: int, feed_forward: Block, *, normed: bool, tied: bool
) -> Architecture:
    layers = configuration.integer("num_hidden_layers")
    grouped = GroupedAttention.of(configuration)

    def attention(name: str, layer: int) -> Iterator[Weight]:
        bias = configuration.flag("attention_bias")
        return grouped.weights(
            f"{name}.self_attn", layer, bias=bias, output_bias=bias, query_key_norm="all" if normed else None
        )

    every = tuple(range(layers))
    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (grouped.cache(every),),
        Experts(every, count, configuration.positive("num_experts_per_tok"), inner),
        tied=tied,
    )
