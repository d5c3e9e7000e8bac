"""MiMo: Qwen2 with a layer for drafts; from V2 on most layers attend to a window, with heads of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration, IncompleteConfiguration
from onecat.checkpoints.architectures.decoder import layer_of
from onecat.checkpoints.architectures.families.qwen import QWEN2, qwen_decoder
from onecat.checkpoints.architectures.layers import alike
from onecat.checkpoints.architectures.mixtures import grouped_router_mixture, layers_after_dense, of_part
from onecat.checkpoints.architectures.records import Architecture, Experts, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.sparse_decoder import sparse_decoder


@family("MiMoForCausalLM")
def mimo(configuration: Configuration) -> Architecture:
    """Qwen2's decoder, and draft layers (`model.mtp_layers.0`) that have no embedding and no head of their own.

    Source: vllm 0.27.1, vllm/model_executor/models/mimo.py and mimo_mtp.py; the index of XiaomiMiMo/MiMo-7B,
    https://github.com/jj8127/mimo_kor/blob/3280a423c62c3e845b831a7d9db6aa793b9c5502/model.safetensors.index.json.
    """
    language = qwen_decoder(configuration, QWEN2)
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    drafts = tuple(range(layers, layers + configuration.count("num_nextn_predict_layers")))

    def draft(layer: int) -> Iterator[Weight]:
        name = f"model.mtp_layers.{layer - layers}"
        yield from weights.norms(f"{name}.", ("token_layernorm", "hidden_layernorm", "final_layernorm"), hidden, layer)
        yield from weights.linear(f"{name}.input_proj", hidden, 2 * hidden, layer)
        yield from layer_of(configuration, QWEN2, name, layer)

    return language.replaced(
        weights=(*language.weights, *of_part("draft", (each for layer in drafts for each in draft(layer)))),
        draft_caches=tuple(replace(each, layers=drafts) for each in language.caches[:1] if drafts),
    )


@family("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")
def mimo_v2(configuration: Configuration) -> Architecture:
    """Source: vllm 0.27.1, vllm/model_executor/models/mimo_v2.py."""
    hidden, layers = configuration.positive("hidden_size"), configuration.integer("num_hidden_layers")
    pattern = configuration.text.get("hybrid_layer_pattern")
    if not isinstance(pattern, list) or len(pattern) < layers:
        raise IncompleteConfiguration("`hybrid_layer_pattern` in config.json does not tell the kind of every layer")
    kinds = (_attention(configuration, "", False), _attention(configuration, "swa_", True))
    count, inner = configuration.positive("n_routed_experts"), configuration.positive("moe_intermediate_size")
    shared = inner * configuration.count("n_shared_experts")
    mixed = layers_after_dense(configuration, layers)

    def kept(layer: int) -> KeyValueLayers:
        return kinds[pattern[layer] == 1]

    def attention(name: str, layer: int) -> Iterator[Weight]:
        kind = kept(layer)
        yield from weights.attention(
            f"{name}.self_attn", layer, hidden, kind.query_heads, kind.key_value_heads, kind.head_size,
            value_head=kind.value_head_size, bias=configuration.flag("attention_bias"),
        )  # fmt: skip
        if kind.sinks:
            yield Weight(f"{name}.self_attn.attention_sink_bias", (kind.query_heads,), "other", layer)

    def feed_forward(name: str, layer: int) -> Iterator[Weight]:
        if layer in mixed:
            yield from grouped_router_mixture(f"{name}.mlp", layer, hidden, inner, count, shared)
        else:
            yield from weights.gated_mlp(f"{name}.mlp", layer, hidden, configuration.positive("intermediate_size"))

    return sparse_decoder(
        configuration,
        attention,
        feed_forward,
        alike(replace(kept(layer), layers=(layer,)) for layer in range(layers)),
        Experts(mixed, count, configuration.positive("num_experts_per_tok"), inner, shared),
    )


def _attention(configuration: Configuration, prefix: str, windowed: bool) -> KeyValueLayers:
    head = configuration.positive(f"{prefix}head_dim")
    return KeyValueLayers(
        (),
        configuration.positive(f"{prefix}num_attention_heads"),
        configuration.positive(f"{prefix}num_key_value_heads"),
        head,
        configuration.positive(f"{prefix}v_head_dim", default=head),
        configuration.positive("sliding_window_size", "sliding_window") if windowed else None,
        sinks=configuration.flag("add_swa_attention_sink_bias" if windowed else "add_full_attention_sink_bias"),
    )
