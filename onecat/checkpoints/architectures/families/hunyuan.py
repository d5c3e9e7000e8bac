"""Hunyuan's mixtures of experts (A13B)."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.grouped_attention import GroupedAttention
from onecat.checkpoints.architectures.mixtures import router, separate_experts
from onecat.checkpoints.architectures.records import Architecture, Experts, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("HunYuanMoEV1ForCausalLM")
def hunyuan_moe(configuration: Configuration) -> Architecture:
    """Every layer has experts; how large and how many may be stated for each layer, and is the same in all.

    Source: vllm 0.27.1, vllm/model_executor/models/hunyuan_v1.py; transformers' modeling_hunyuan_v1_moe.py.
    """
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    grouped = GroupedAttention.of(configuration, "attention_head_dim")
    count, inner = configuration.positive("num_experts"), _alike(configuration, "moe_intermediate_size")
    shared = configuration.positive("intermediate_size") * _alike(configuration, "num_shared_expert")
    normed = configuration.flag("use_qk_norm", True)

    def attention(name: str, layer: int) -> Iterator[Weight]:
        prefix, bias = f"{name}.self_attn", configuration.flag("attention_bias")
        yield from grouped.weights(prefix, layer, bias=bias, output_bias=bias)
        if normed:
            yield from weights.norms(f"{prefix}.", ("query_layernorm", "key_layernorm"), grouped.head, layer)

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        yield from router(f"{name}.mlp.gate.wg", count, hidden, layer)
        yield from separate_experts(f"{name}.mlp.experts", layer, hidden, inner, count)
        if shared:
            yield from weights.gated_mlp(f"{name}.mlp.shared_mlp", layer, hidden, shared)

    every = tuple(range(layers))
    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (grouped.cache(every),),
        Experts(every, count, _alike(configuration, "moe_topk"), inner, shared),
        tied=True,
    ).replaced(head_size=grouped.head)


def _alike(configuration: Configuration, name: str) -> int:
    value = configuration.text.get(name)
    if isinstance(value, list) and len({repr(each) for each in value}) == 1:
        value = value[0]
    if type(value) is not int or value < 0:
        raise IncompleteConfiguration(f"config.json has no whole number `{name}` that all layers share")
    return value
