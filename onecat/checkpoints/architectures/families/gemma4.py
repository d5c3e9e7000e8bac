"""Gemma 4, dense and with experts: local and global layers with heads of different size and number."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import gemma4_towers, weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.layers import alike
from onecat.checkpoints.architectures.mixtures import experts_as_published, router
from onecat.checkpoints.architectures.records import Architecture, Experts, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family

EXPERT_NORMS = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
IMAGE_TOKENS = 280
"""Of one picture, where `vision_soft_tokens_per_image` is not stated (transformers' processing_gemma4.py)."""


@family("Gemma4ForCausalLM")
def gemma4(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_gemma4.py, configuration_gemma4.py."""
    return _text(_filled(configuration), "model.")


@family("Gemma4ForConditionalGeneration")
def gemma4_with_towers(configuration: Configuration) -> Architecture:
    """A vision tower, and in the small models one for sound, before the text model.

    Source: transformers' modeling_gemma4.py (Gemma4VisionModel, Gemma4AudioModel, Gemma4MultimodalEmbedder).
    """
    configuration = _filled(configuration)
    architecture = _text(configuration, "model.language_model.")
    hidden = configuration.positive("hidden_size")
    if (vision := configuration.section("vision_config")) is not None:
        tokens = configuration.of_document("vision_soft_tokens_per_image", IMAGE_TOKENS)
        tower = tuple(gemma4_towers.vision_weights(vision, hidden))
        architecture = architecture.with_tower(tower, gemma4_towers.vision_encoder(vision, tokens))
    if (audio := configuration.section("audio_config")) is not None:
        tower = tuple(gemma4_towers.audio_weights(audio, hidden))
        architecture = architecture.with_tower(tower, gemma4_towers.audio_encoder(audio))
    return architecture


@family("Gemma4UnifiedForConditionalGeneration")
def gemma4_unified(configuration: Configuration) -> Architecture:
    """Patches and sound go into the decoder by one matrix each, without a tower.

    Source: transformers' modeling_gemma4_unified.py, configuration_gemma4_unified.py; vLLM's gemma4_unified.py (names).
    """
    small = {"hidden_size_per_layer_input": 0, "sliding_window": 1024, "max_position_embeddings": 262144}
    configuration = _filled(configuration.with_defaults(**small))
    architecture = _text(configuration, "model.language_model.")
    hidden = configuration.positive("hidden_size")
    inputs: list[Weight] = []
    if (vision := configuration.section("vision_config")) is not None:
        inputs.extend(gemma4_towers.patch_weights(vision, hidden))
    if (audio := configuration.section("audio_config")) is not None:
        samples = audio.positive("audio_embed_dim", default=640)
        inputs.extend(weights.linear("model.embed_audio.embedding_projection", hidden, samples, part="audio"))
    return architecture.replaced(weights=(*architecture.weights, *inputs))


def _filled(stated: Configuration) -> Configuration:
    return stated.with_defaults(
        vocab_size=262144, hidden_size=2304, intermediate_size=9216, num_hidden_layers=30, num_attention_heads=8,
        num_key_value_heads=4, head_dim=256, global_head_dim=512, sliding_window=512, max_position_embeddings=131072,
        hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144,
    )  # fmt: skip


def _text(configuration: Configuration, prefix: str) -> Architecture:
    """The decoder. The last `num_kv_shared_layers` read keys and values of others and keep none.

    Checkpoints hold the projections of those layers all the same; transformers ignores them.
    """
    layers, tied = configuration.integer("num_hidden_layers"), configuration.ties(True)
    every = tuple(_layer(configuration, index, layers) for index in range(layers))
    kept = max(0, layers - configuration.integer("num_kv_shared_layers", default=0))
    hidden = configuration.positive("hidden_size")

    def parameters() -> Iterator[Weight]:
        yield from weights.embeddings(prefix, configuration.positive("vocab_size"), hidden, tied)
        for layer, cache in enumerate(every):
            yield from _layer_weights(configuration, f"{prefix}layers.{layer}", layer, cache, layer < kept)
        yield weights.norm(f"{prefix}norm", hidden)
        if inputs := configuration.integer("hidden_size_per_layer_input", default=0):
            words = configuration.positive("vocab_size_per_layer_input")
            yield Weight(f"{prefix}embed_tokens_per_layer.weight", (words, layers * inputs), "embedding")
            yield from weights.linear(f"{prefix}per_layer_model_projection", layers * inputs, hidden)
            yield weights.norm(f"{prefix}per_layer_projection_norm", inputs)

    return common(configuration).replaced(
        tied_embeddings=tied,
        caches=alike(every[:kept]),
        weights=tuple(parameters()),
        experts=_experts(configuration, layers),
    )


def _experts(configuration: Configuration, layers: int) -> Experts | None:
    count = configuration.optional("num_experts")
    if not configuration.flag("enable_moe_block") or not count:
        return None
    inner = configuration.positive("moe_intermediate_size", "expert_intermediate_size")
    return Experts(tuple(range(layers)), count, configuration.positive("top_k_experts"), inner)


def _layer(configuration: Configuration, layer: int, layers: int) -> KeyValueLayers:
    """One layer's keys and values; the last layer is a global one whatever `layer_types` says."""
    heads, head = configuration.positive("num_attention_heads"), configuration.positive("head_dim")
    key_value_heads = configuration.positive("num_key_value_heads")
    types = configuration.words("layer_types")
    is_global = types[layer] == "full_attention" if layer < len(types) else (layer + 1) % 6 == 0
    if not is_global and layer != layers - 1:
        window = configuration.positive("sliding_window")
        return KeyValueLayers((layer,), heads, key_value_heads, head, head, window)
    if configuration.flag("attention_k_eq_v"):
        key_value_heads = configuration.optional("num_global_key_value_heads") or key_value_heads
    head = configuration.optional("global_head_dim") or head
    return KeyValueLayers((layer,), heads, key_value_heads, head, head)


def _layer_weights(
    configuration: Configuration, prefix: str, layer: int, cache: KeyValueLayers, keeps: bool
) -> Iterator[Weight]:
    """keeps: the layer keeps keys and values. With `attention_k_eq_v` global layers have no v_proj."""
    hidden, attention = configuration.positive("hidden_size"), f"{prefix}.self_attn"
    bias = configuration.flag("attention_bias")
    queries, keys = cache.query_heads * cache.head_size, cache.key_value_heads * cache.head_size
    yield from weights.linear(f"{attention}.q_proj", queries, hidden, layer, bias=bias)
    yield weights.norm(f"{attention}.q_norm", cache.head_size, layer)
    yield from weights.linear(f"{attention}.k_proj", keys, hidden, layer, bias=bias)
    yield weights.norm(f"{attention}.k_norm", cache.head_size, layer)
    if cache.window is not None or not configuration.flag("attention_k_eq_v"):
        yield from weights.linear(f"{attention}.v_proj", keys, hidden, layer, bias=bias)
    yield from weights.linear(f"{attention}.o_proj", hidden, queries, layer, bias=bias)
    wide = configuration.flag("use_double_wide_mlp") and not keeps
    inner = configuration.positive("intermediate_size") * (2 if wide else 1)
    yield from weights.gated_mlp(f"{prefix}.mlp", layer, hidden, inner)
    yield from weights.norms(f"{prefix}.", weights.FOUR_NORMS, hidden, layer)
    yield Weight(f"{prefix}.layer_scalar", (1,), "other", layer)
    if (experts := _experts(configuration, layer + 1)) is not None:
        yield from _expert_weights(configuration, prefix, layer, experts)
    if inputs := configuration.integer("hidden_size_per_layer_input", default=0):
        yield from weights.linear(f"{prefix}.per_layer_input_gate", inputs, hidden, layer)
        yield from weights.linear(f"{prefix}.per_layer_projection", hidden, inputs, layer)
        yield weights.norm(f"{prefix}.post_per_layer_input_norm", hidden, layer)


def _expert_weights(configuration: Configuration, prefix: str, layer: int, experts: Experts) -> Iterator[Weight]:
    """A router and experts beside the dense network, all experts of a layer in one tensor unless quantised."""
    hidden, count = configuration.positive("hidden_size"), experts.count
    yield from router(f"{prefix}.router.proj", count, hidden, layer)
    yield Weight(f"{prefix}.router.scale", (hidden,), "other", layer)
    yield Weight(f"{prefix}.router.per_expert_scale", (count,), "other", layer)
    of_layer = experts_as_published(configuration)
    yield from of_layer(f"{prefix}.experts", layer, hidden, experts.intermediate_size, count)
    yield from weights.norms(f"{prefix}.", EXPERT_NORMS, hidden, layer)
