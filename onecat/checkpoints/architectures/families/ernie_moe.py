"""ERNIE 4.5's mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.mixtures import router, separate_experts
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("Ernie4_5_MoeForCausalLM")
def ernie_moe(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_ernie4_5_moe.py; vllm 0.27.1, vllm/model_executor/models/ernie45_moe.py."""
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    grouped = GroupedAttention.of(configuration)
    count, inner = configuration.positive("moe_num_experts"), configuration.positive("moe_intermediate_size")
    shared = inner * configuration.count("moe_num_shared_experts")
    first = configuration.count("moe_layer_start_index")
    stated = configuration.optional("moe_layer_end_index")
    last = layers - 1 if stated is None else stated
    step = configuration.positive("moe_layer_interval", default=1)
    mixed = tuple(index for index in range(layers) if first <= index <= last and (index + 1) % step == 0)
    bias = configuration.flag("use_bias")

    def attention(name: str, layer: int) -> Iterator[Weight]:
        return grouped.weights(f"{name}.self_attn", layer, bias=bias, output_bias=bias)

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        if layer not in mixed:
            inside = configuration.positive("intermediate_size")
            yield from weights.gated_mlp(f"{name}.mlp", layer, hidden, inside, bias=bias)
            return
        yield from router(f"{name}.mlp.gate", count, hidden, layer)
        yield Weight(f"{name}.mlp.moe_statics.e_score_correction_bias", (1, count), "bias", layer, dtype="F32")
        yield from separate_experts(f"{name}.mlp.experts", layer, hidden, inner, count)
        if shared:
            yield from weights.gated_mlp(f"{name}.mlp.shared_experts", layer, hidden, shared)

    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (grouped.cache(tuple(range(layers))),),
        Experts(mixed, count, configuration.positive("moe_k"), inner, shared),
        tied=True,
    )
