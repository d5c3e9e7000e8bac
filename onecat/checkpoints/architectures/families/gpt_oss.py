"""gpt-oss: experts whose tensors are stored together, a sink per head, and a sliding window in every second layer."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.mixtures import fused_experts, router
from onecat.checkpoints.architectures.records import Architecture, Experts, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("GptOssForCausalLM")
def gpt_oss(configuration: Configuration) -> Architecture:
    """In MXFP4 `gate_up_proj` and `down_proj` are stored as `..._blocks` and `..._scales`.

    Source: transformers' modeling_gpt_oss.py.
    """
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    heads = configuration.positive("num_attention_heads")
    key_value_heads = configuration.positive("num_key_value_heads")
    head = configuration.positive("head_dim", default=64)
    count, inner = configuration.positive("num_local_experts"), configuration.positive("intermediate_size")
    bias = configuration.flag("attention_bias", True)
    kinds = configuration.words("layer_types") or tuple(
        "full_attention" if index % 2 else "sliding_attention" for index in range(layers)
    )

    def attention(name: str, layer: int) -> Iterator[Weight]:
        prefix = f"{name}.self_attn"
        yield from weights.attention(prefix, layer, hidden, heads, key_value_heads, head, bias=bias, output_bias=bias)
        yield Weight(f"{prefix}.sinks", (heads,), "other", layer)

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        yield from router(f"{name}.mlp.router", count, hidden, layer, bias=True)
        yield from fused_experts(f"{name}.mlp.experts", layer, hidden, inner, count)
        yield Weight(f"{name}.mlp.experts.gate_up_proj_bias", (2 * inner,), "bias", layer, count)
        yield Weight(f"{name}.mlp.experts.down_proj_bias", (hidden,), "bias", layer, count)

    def kept(kind: str, window: int | None) -> KeyValueLayers:
        alike = tuple(index for index, each in enumerate(kinds[:layers]) if each == kind)
        return KeyValueLayers(alike, heads, key_value_heads, head, head, window, sinks=True)

    both = (
        kept("full_attention", None),
        kept("sliding_attention", configuration.positive("sliding_window", default=128)),
    )
    per_token = configuration.positive("num_experts_per_tok", "experts_per_token")
    experts = Experts(tuple(range(layers)), count, per_token, inner)
    return sparse_decoder(configuration, attention, feed_forward, both, experts).replaced(head_size=head)
