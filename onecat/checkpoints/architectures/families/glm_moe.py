"""GLM-4.5, 4.6 and 4.7: ordinary attention, and the mixture of DeepSeek-V3."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.mixtures import grouped_router_mixture, layers_after_dense
from onecat.checkpoints.architectures.records import Architecture, Experts, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("Glm4MoeForCausalLM")
def glm4_moe(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_glm4_moe.py; vllm 0.27.1, vllm/model_executor/models/glm4_moe_mtp.py."""
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    heads = configuration.positive("num_attention_heads")
    key_value_heads = configuration.positive("num_key_value_heads", default=heads)
    head = configuration.positive("head_dim", default=hidden // heads)
    count, inner = configuration.positive("n_routed_experts"), configuration.positive("moe_intermediate_size")
    shared = inner * configuration.count("n_shared_experts")
    mixed = layers_after_dense(configuration, layers)
    drafts = configuration.count("num_nextn_predict_layers")

    def attention(name: str, layer: int) -> Iterator[Weight]:
        return weights.attention(
            f"{name}.self_attn", layer, hidden, heads, key_value_heads, head,
            bias=configuration.flag("attention_bias"), query_key_norm=configuration.flag("use_qk_norm"),
        )  # fmt: skip

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        if layer in mixed or layer >= layers:
            yield from grouped_router_mixture(f"{name}.mlp", layer, hidden, inner, count, shared)
        else:
            yield from weights.gated_mlp(f"{name}.mlp", layer, hidden, configuration.positive("intermediate_size"))

    def kept(indices: range) -> KeyValueLayers:
        return KeyValueLayers(tuple(indices), heads, key_value_heads, head, head)

    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        (kept(range(layers)),),
        Experts(mixed, count, configuration.positive("num_experts_per_tok"), inner, shared),
        next_token_layers=drafts,
        draft_caches=(kept(range(layers, layers + drafts)),) if drafts else (),
    ).replaced(head_size=head)
