"""Qwen3-Next and Qwen3.5 (also 3.6 and 3.8): gated delta nets, with ordinary attention in every fourth layer."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.gated_delta_net import GatedDeltaNet
from onecat.checkpoints.architectures.mixtures import (
    ExpertWeights,
    experts_as_published,
    layers_by_step,
    of_part,
    separate_experts,
    shared_gate_mixture,
)
from onecat.checkpoints.architectures.qwen_vision import with_vision
from onecat.checkpoints.architectures.records import Architecture, Experts, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family


@family("Qwen3NextForCausalLM")
def qwen3_next(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_qwen3_next.py."""
    return _hybrid(configuration, "model.", fused_projections=True, experts_of_layer=separate_experts)


@family("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM")
def qwen3_5_text(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_qwen3_5.py and modeling_qwen3_5_moe.py."""
    return _hybrid(
        configuration, "model.", fused_projections=False, experts_of_layer=experts_as_published(configuration)
    )


@family("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
def qwen3_5(configuration: Configuration) -> Architecture:
    """With the vision tower of Qwen3-VL.

    Source: transformers' modeling_qwen3_5.py and modeling_qwen3_5_moe.py.
    """
    language = _hybrid(
        configuration,
        "model.language_model.",
        fused_projections=False,
        experts_of_layer=experts_as_published(configuration),
    )
    return with_vision(language, configuration)


def _hybrid(
    configuration: Configuration, prefix: str, *, fused_projections: bool, experts_of_layer: ExpertWeights
) -> Architecture:
    base = common(configuration)
    linear_attention = GatedDeltaNet.of(configuration)
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    heads = configuration.positive("num_attention_heads")
    key_value_heads = configuration.positive("num_key_value_heads")
    head = configuration.positive("head_dim", default=256)
    gated = configuration.flag("attn_output_gate", True)
    kinds = _kinds(configuration, layers)
    count = configuration.count("num_experts", "num_local_experts")
    inner = configuration.positive("moe_intermediate_size") if count else 0
    shared = configuration.positive("shared_expert_intermediate_size") if count else 0
    mixed = layers_by_step(configuration, layers) if count else ()
    drafts = configuration.count("mtp_num_hidden_layers", "num_nextn_predict_layers")

    def feed_forward(name: str, layer: int, experts: ExpertWeights) -> Iterator[Weight]:
        if layer < layers and layer not in mixed or not count:
            yield from weights.gated_mlp(name, layer, hidden, configuration.positive("intermediate_size"))
            return
        yield from shared_gate_mixture(name, layer, hidden, inner, count, shared, experts)

    def block(name: str, layer: int, kind: str, experts: ExpertWeights) -> Iterator[Weight]:
        yield weights.norm(f"{name}.input_layernorm", hidden, layer)
        if kind == "linear_attention":
            yield from linear_attention.weights(f"{name}.linear_attn", layer, fused=fused_projections)
        else:
            yield from _attention(f"{name}.self_attn", layer)
        yield weights.norm(f"{name}.post_attention_layernorm", hidden, layer)
        yield from feed_forward(f"{name}.mlp", layer, experts)

    def _attention(name: str, layer: int) -> Iterator[Weight]:
        bias = configuration.flag("attention_bias")
        yield from weights.linear(f"{name}.q_proj", heads * head * (2 if gated else 1), hidden, layer, bias=bias)
        yield from weights.linear(f"{name}.k_proj", key_value_heads * head, hidden, layer, bias=bias)
        yield from weights.linear(f"{name}.v_proj", key_value_heads * head, hidden, layer, bias=bias)
        yield from weights.linear(f"{name}.o_proj", hidden, heads * head, layer, bias=bias)
        yield weights.norm(f"{name}.q_norm", head, layer)
        yield weights.norm(f"{name}.k_norm", head, layer)

    def draft() -> Iterator[Weight]:
        yield from weights.linear("mtp.fc", hidden, 2 * hidden)
        for index in range(drafts):
            yield from block(f"mtp.layers.{index}", layers + index, "full_attention", separate_experts)
        for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
            yield weights.norm(f"mtp.{name}", hidden)

    def all_weights() -> Iterator[Weight]:
        yield from weights.embeddings(prefix, configuration.positive("vocab_size"), hidden, base.tied_embeddings)
        for layer, kind in enumerate(kinds):
            yield from block(f"{prefix}layers.{layer}", layer, kind, experts_of_layer)
        yield weights.norm(f"{prefix}norm", hidden)
        if drafts:
            yield from of_part("draft", draft())

    def attending(indices: tuple[int, ...]) -> KeyValueLayers:
        return KeyValueLayers(indices, heads, key_value_heads, head, head)

    full = tuple(index for index, kind in enumerate(kinds) if kind == "full_attention")
    linear = tuple(index for index, kind in enumerate(kinds) if kind == "linear_attention")
    return base.replaced(
        head_size=head,
        intermediate_size=base.intermediate_size if len(mixed) < layers else shared,
        caches=(attending(full), linear_attention.cache(linear)),
        draft_caches=(attending(tuple(range(layers, layers + drafts))),) if drafts else (),
        weights=tuple(all_weights()),
        experts=Experts(mixed, count, configuration.positive("num_experts_per_tok"), inner, shared) if mixed else None,
    )


def _kinds(configuration: Configuration, layers: int) -> tuple[str, ...]:
    """The kind of each layer. Raises IncompleteConfiguration for a kind that these models do not have."""
    interval = configuration.positive("full_attention_interval", default=4)
    kinds = configuration.words("layer_types")[:layers] or tuple(
        "linear_attention" if (index + 1) % interval else "full_attention" for index in range(layers)
    )
    unknown = set(kinds) - {"linear_attention", "full_attention"}
    if unknown or len(kinds) != layers:
        raise IncompleteConfiguration(f"`layer_types` in config.json does not tell the kinds of {layers} layers")
    return kinds
