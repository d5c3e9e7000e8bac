"""Qwen's mixtures of experts with ordinary attention: Qwen2-MoE, Qwen3-MoE and Qwen3-VL-MoE."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.mixtures import (
    ExpertWeights,
    experts_as_published,
    layers_by_step,
    separate_experts,
    shared_gate_mixture,
)
from onecat.checkpoints.architectures.qwen_vision import with_vision
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("Qwen2MoeForCausalLM")
def qwen2_moe(configuration: Configuration) -> Architecture:
    """With biases on q, k and v, and a gated shared expert.

    Source: transformers' modeling_qwen2_moe.py.
    """
    return _qwen_moe(configuration, second=True)


@family("Qwen3MoeForCausalLM")
def qwen3_moe(configuration: Configuration) -> Architecture:
    """With norms over the heads of q and k.

    Source: transformers' modeling_qwen3_moe.py.
    """
    return _qwen_moe(configuration)


@family("Qwen3VLMoeForConditionalGeneration")
def qwen3_vl_moe(configuration: Configuration) -> Architecture:
    """Qwen3-MoE with a vision tower; the experts of a layer are one tensor unless they are quantised.

    Source: transformers' modeling_qwen3_vl_moe.py.
    """
    language = _qwen_moe(
        configuration, prefix="model.language_model.", experts_of_layer=experts_as_published(configuration)
    )
    return with_vision(language, configuration)


def _qwen_moe(
    configuration: Configuration, *, second: bool = False, prefix: str = "model.",
    experts_of_layer: ExpertWeights = separate_experts,
) -> Architecture:  # fmt: skip
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    grouped = GroupedAttention.of(configuration)
    count, inner = (
        configuration.positive("num_experts", "num_local_experts"),
        configuration.positive("moe_intermediate_size"),
    )
    shared = configuration.count("shared_expert_intermediate_size") if second else 0
    mixed = layers_by_step(configuration, layers)
    bias = configuration.flag("qkv_bias" if second else "attention_bias", second)
    window = configuration.optional("sliding_window") if configuration.flag("use_sliding_window") else None

    def attention(name: str, layer: int) -> Iterator[Weight]:
        return grouped.weights(
            f"{name}.self_attn", layer, bias=bias, output_bias=bias and not second,
            query_key_norm=None if second else "head",
        )  # fmt: skip

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        if layer not in mixed:
            yield from weights.gated_mlp(f"{name}.mlp", layer, hidden, configuration.positive("intermediate_size"))
            return
        yield from shared_gate_mixture(f"{name}.mlp", layer, hidden, inner, count, shared, experts_of_layer)

    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (grouped.cache(tuple(range(layers)), window),),
        Experts(mixed, count, configuration.positive("num_experts_per_tok"), inner, shared),
        prefix=prefix,
    )
