"""Qwen's mixtures of experts with ordinary attention: Qwen2-MoE and Qwen3-MoE."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.mixtures import layers_by_step, router, separate_experts
from onecat.checkpoints.architectures.records import Architecture, Experts, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family


@family("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM")
def qwen_moe(configuration: Configuration) -> Architecture:
    """Qwen2-MoE has biases on q, k and v and a gated shared expert; Qwen3-MoE norms over heads instead.

    Source: transformers' modeling_qwen2_moe.py and modeling_qwen3_moe.py.
    """
    base = common(configuration)
    second = base.name == "Qwen2MoeForCausalLM"
    hidden, layers = configuration.integer("hidden_size"), configuration.integer("num_hidden_layers")
    heads = configuration.integer("num_attention_heads")
    key_value_heads = configuration.integer("num_key_value_heads", default=heads)
    head = configuration.integer("head_dim", default=hidden // heads)
    count, inner = configuration.integer("num_experts"), configuration.integer("moe_intermediate_size")
    shared = configuration.integer("shared_expert_intermediate_size", default=0) if second else 0
    mixed = layers_by_step(configuration, layers)
    bias = configuration.flag("qkv_bias" if second else "attention_bias", second)
    window = configuration.optional("sliding_window") if configuration.flag("use_sliding_window") else None

    def feed_forward(prefix: str, layer: int) -> Iterator[Weight]:
        if layer not in mixed:
            yield from weights.gated_mlp(prefix, layer, hidden, configuration.integer("intermediate_size"))
            return
        yield from router(f"{prefix}.gate", count, hidden, layer)
        yield from separate_experts(f"{prefix}.experts", layer, hidden, inner, count)
        if shared:
            yield from weights.gated_mlp(f"{prefix}.shared_expert", layer, hidden, shared)
            yield Weight(f"{prefix}.shared_expert_gate.weight", (1, hidden), "router", layer)

    def all_weights() -> Iterator[Weight]:
        yield from weights.embeddings("model.", configuration.integer("vocab_size"), hidden, base.tied_embeddings)
        for layer in range(layers):
            prefix = f"model.layers.{layer}"
            yield weights.norm(f"{prefix}.input_layernorm", hidden, layer)
            yield from weights.attention(
                f"{prefix}.self_attn", layer, hidden, heads, key_value_heads, head,
                bias=bias, output_bias=bias and not second, query_key_norm=not second,
            )  # fmt: skip
            yield weights.norm(f"{prefix}.post_attention_layernorm", hidden, layer)
            yield from feed_forward(f"{prefix}.mlp", layer)
        yield weights.norm("model.norm", hidden)

    return base.replaced(
        intermediate_size=base.intermediate_size if len(mixed) < layers else shared,
        caches=(KeyValueLayers(tuple(range(layers)), heads, key_value_heads, head, head, window),),
        weights=tuple(all_weights()),
        experts=Experts(mixed, count, configuration.integer("num_experts_per_tok"), inner, shared),
    )
