"""Gemma 3n: embeddings for each layer, several streams of hidden states, and layers that share keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import gemma3n_towers, weights
from onecat.checkpoints.architectures.configuration import Configuration, is_count
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.layers import alike, windows
from onecat.checkpoints.architectures.records import Architecture, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family


@family("Gemma3nForCausalLM")
def gemma3n(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_gemma3n.py, configuration_gemma3n.py."""
    return _text(_filled(configuration), "model.")


@family("Gemma3nForConditionalGeneration")
def gemma3n_with_towers(configuration: Configuration) -> Architecture:
    """Source: transformers' modeling_gemma3n.py (Gemma3nAudioEncoder, Gemma3nMultimodalEmbedder)."""
    configuration = _filled(configuration)
    architecture = _text(configuration, "model.language_model.")
    hidden = configuration.positive("hidden_size")
    if (vision := configuration.section("vision_config")) is not None:
        tokens = configuration.of_document("vision_soft_tokens_per_image", 256)
        tower = tuple(gemma3n_towers.vision_weights(vision, hidden))
        architecture = architecture.with_tower(tower, gemma3n_towers.vision_encoder(tokens))
    if (audio := configuration.section("audio_config")) is not None:
        tower = tuple(gemma3n_towers.audio_weights(audio, hidden))
        architecture = architecture.with_tower(tower, gemma3n_towers.audio_encoder(audio))
    return architecture


def _filled(stated: Configuration) -> Configuration:
    return stated.with_defaults(
        vocab_size=262400, hidden_size=2048, num_hidden_layers=35, num_attention_heads=8, num_key_value_heads=2,
        head_dim=256, sliding_window=512, max_position_embeddings=32768, vocab_size_per_layer_input=262144,
        hidden_size_per_layer_input=256, altup_num_inputs=4, num_kv_shared_layers=15, laurel_rank=64,
        intermediate_size=16384,
    )  # fmt: skip


def _text(configuration: Configuration, prefix: str) -> Architecture:
    """The decoder. The last `num_kv_shared_layers` read keys and values of others and keep none, though the
    checkpoint holds their projections."""
    layers, hidden = configuration.integer("num_hidden_layers"), configuration.positive("hidden_size")
    heads, head = configuration.positive("num_attention_heads"), configuration.positive("head_dim")
    key_value_heads = configuration.positive("num_key_value_heads")
    per_layer = windows(configuration, layers, lambda layer: (layer + 1) % 5 != 0)
    kept = max(0, layers - configuration.integer("num_kv_shared_layers"))
    caches = alike(
        KeyValueLayers((layer,), heads, key_value_heads, head, head, per_layer[layer]) for layer in range(kept)
    )
    tied, streams = configuration.ties(True), configuration.positive("altup_num_inputs")
    inputs, inner = configuration.positive("hidden_size_per_layer_input"), _inner_sizes(configuration, layers)

    def parameters() -> Iterator[Weight]:
        yield from weights.embeddings(prefix, configuration.positive("vocab_size"), hidden, tied)
        words = configuration.positive("vocab_size_per_layer_input")
        yield Weight(f"{prefix}embed_tokens_per_layer.weight", (words, layers * inputs), "embedding")
        yield from weights.linear(f"{prefix}per_layer_model_projection", layers * inputs, hidden)
        yield weights.norm(f"{prefix}per_layer_projection_norm", inputs)
        for stream in range(streams - 1):
            yield from weights.linear(f"{prefix}altup_projections.{stream}", hidden, hidden)
            yield from weights.linear(f"{prefix}altup_unembed_projections.{stream}", hidden, hidden)
        for layer in range(layers):
            inside = f"{prefix}layers.{layer}"
            yield from weights.attention(
                f"{inside}.self_attn", layer, hidden, heads, key_value_heads, head, query_key_norm="head"
            )
            yield from weights.gated_mlp(f"{inside}.mlp", layer, hidden, inner[layer])
            yield from weights.norms(f"{inside}.", weights.FOUR_NORMS, hidden, layer)
            yield from _additions(configuration, f"{inside}.", layer, hidden, streams, inputs)
        yield weights.norm(f"{prefix}norm", hidden)

    return common(configuration).replaced(
        intermediate_size=max(inner, default=0), tied_embeddings=tied, caches=caches, weights=tuple(parameters()),
        rotary_windows=True,
    )  # fmt: skip


def _inner_sizes(configuration: Configuration, layers: int) -> tuple[int, ...]:
    """`intermediate_size` is one number, or a list with one for each layer."""
    stated = configuration.text.get("intermediate_size")
    if isinstance(stated, list) and len(stated) >= layers and all(is_count(each) and each for each in stated):
        return tuple(stated[:layers])
    return (configuration.positive("intermediate_size"),) * layers


def _additions(
    configuration: Configuration, prefix: str, layer: int, hidden: int, streams: int, inputs: int
) -> Iterator[Weight]:
    """What a layer has beside attention and feed-forward network: AltUp, LAuReL and its own embedding."""
    rank = configuration.positive("laurel_rank")
    yield Weight(f"{prefix}altup.correct_output_scale", (hidden,), "other", layer)
    yield from weights.linear(f"{prefix}altup.correction_coefs", streams, streams, layer)
    yield from weights.linear(f"{prefix}altup.prediction_coefs", streams**2, streams, layer)
    yield from weights.linear(f"{prefix}altup.modality_router", streams, hidden, layer)
    yield weights.norm(f"{prefix}altup.router_norm", hidden, layer)
    yield from weights.linear(f"{prefix}laurel.linear_left", rank, hidden, layer)
    yield from weights.linear(f"{prefix}laurel.linear_right", hidden, rank, layer)
    yield weights.norm(f"{prefix}laurel.post_laurel_norm", hidden, layer)
    yield from weights.linear(f"{prefix}per_layer_input_gate", inputs, hidden, layer)
    yield from weights.linear(f"{prefix}per_layer_projection", hidden, inputs, layer)
    yield weights.norm(f"{prefix}post_per_layer_input_norm", hidden, layer)
