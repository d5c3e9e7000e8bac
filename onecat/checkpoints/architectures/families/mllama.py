"""Llama 3.2 Vision: some decoder layers attend to the picture and not to the prompt."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.architectures import weights
from onecat.checkpoints.architectures.configuration import Configuration
from onecat.checkpoints.architectures.description import common
from onecat.checkpoints.architectures.records import Architecture, Encoder, KeyValueLayers, Weight
from onecat.checkpoints.architectures.registry import family
from onecat.checkpoints.architectures.towers import plain_attention, plain_mlp

EXTRA_WORDS = 8
"""Rows that the embedding has and the output head has not, for the picture's token."""


@family("MllamaForConditionalGeneration")
def mllama(configuration: Configuration) -> Architecture:
    """Layers in `cross_attention_layers` keep keys and values of the picture's tokens.

    Source: transformers' modeling_mllama.py, configuration_mllama.py.
    """
    layers, heads = configuration.integer("num_hidden_layers"), configuration.positive("num_attention_heads")
    hidden, inner = configuration.positive("hidden_size"), configuration.positive("intermediate_size")
    key_value_heads = configuration.positive("num_key_value_heads")
    head = configuration.positive("head_dim", default=hidden // heads)
    crossing = _crossing(configuration, layers)
    vocabulary = configuration.positive("vocab_size")
    prefix = "language_model.model."

    def parameters() -> Iterator[Weight]:
        yield Weight(f"{prefix}embed_tokens.weight", (vocabulary + EXTRA_WORDS, hidden), "embedding")
        for layer in range(layers):
            inside = f"{prefix}layers.{layer}."
            crosses = layer in crossing
            attention = f"{inside}{'cross_attn' if crosses else 'self_attn'}"
            yield from weights.attention(
                attention, layer, hidden, heads, key_value_heads, head, query_key_norm="head" if crosses else None
            )
            if crosses:
                yield Weight(f"{inside}cross_attn_attn_gate", (1,), "other", layer)
                yield Weight(f"{inside}cross_attn_mlp_gate", (1,), "other", layer)
            yield from weights.gated_mlp(f"{inside}mlp", layer, hidden, inner)
            yield from weights.norms(inside, ("input_layernorm", "post_attention_layernorm"), hidden, layer)
        yield weights.norm(f"{prefix}norm", hidden)
        yield Weight("language_model.lm_head.weight", (vocabulary, hidden), "head")

    own = tuple(layer for layer in range(layers) if layer not in crossing)
    kept = (
        KeyValueLayers(own, heads, key_value_heads, head, head),
        KeyValueLayers(crossing, heads, key_value_heads, head, head, cross=True),
    )
    text = common(configuration).replaced(
        head_size=head, tied_embeddings=False, weights=tuple(parameters()), caches=tuple(k for k in kept if k.layers)
    )
    vision = configuration.section("vision_config")
    if vision is None:
        return text
    encoder, tower = _tower(vision, hidden)
    return text.with_tower(tower, encoder)


def _crossing(configuration: Configuration, layers: int) -> tuple[int, ...]:
    stated = configuration.text.get("cross_attention_layers")
    indices = stated if isinstance(stated, list) else [3, 8, 13, 18, 23, 28, 33, 38]
    return tuple(sorted({each for each in indices if type(each) is int and 0 <= each < layers}))


def _tower(stated: Configuration, text_hidden: int) -> tuple[Encoder, tuple[Weight, ...]]:
    """A local and a global transformer over up to four tiles of a picture; its tokens are those of all tiles."""
    vision = stated.with_defaults(
        hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_global_layers=8, attention_heads=16,
        image_size=448, patch_size=14, max_num_tiles=4, vision_output_dim=7680,
    )  # fmt: skip
    hidden, inner = vision.positive("hidden_size"), vision.positive("intermediate_size")
    tiles, patch = vision.positive("max_num_tiles"), vision.positive("patch_size")
    tokens = (vision.positive("image_size") // patch) ** 2 + 1
    ratios = vision.text.get("supported_aspect_ratios")
    rows = (len(ratios) if isinstance(ratios, list) else 8) + 1
    prefix = "vision_model."

    def parameters() -> Iterator[Weight]:
        yield Weight(f"{prefix}class_embedding", (hidden,), "other", part="vision")
        shape = (hidden, vision.positive("num_channels", default=3), patch, patch)
        yield Weight(f"{prefix}patch_embedding.weight", shape, "convolution", part="vision")
        positions = f"{prefix}gated_positional_embedding."
        yield Weight(f"{positions}gate", (1,), "other", part="vision")
        yield Weight(f"{positions}embedding", (tokens, hidden), "other", part="vision")
        yield Weight(f"{positions}tile_embedding.weight", (rows, tiles * tokens * hidden), "other", part="vision")
        for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
            yield Weight(f"{prefix}{name}.gate", (1,), "other", part="vision")
            yield Weight(f"{prefix}{name}.embedding.weight", (rows, tiles * hidden), "other", part="vision")
        yield from weights.norms(prefix, ("layernorm_pre", "layernorm_post"), hidden, bias=True, part="vision")
        for layer in range(vision.integer("num_hidden_layers")):
            yield from _tower_layer(f"{prefix}transformer.layers.{layer}.", hidden, inner)
        for layer in range(vision.integer("num_global_layers")):
            inside = f"{prefix}global_transformer.layers.{layer}."
            yield from _tower_layer(inside, hidden, inner)
            yield Weight(f"{inside}gate_attn", (1,), "other", part="vision")
            yield Weight(f"{inside}gate_ffn", (1,), "other", part="vision")
        wide = vision.positive("vision_output_dim")
        yield from weights.linear("multi_modal_projector", text_hidden, wide, bias=True, part="vision")

    depth = vision.integer("num_hidden_layers") + vision.integer("num_global_layers")
    encoder = Encoder("vision", depth, hidden, inner, vision.positive("attention_heads"), tiles * tokens)
    return encoder, tuple(parameters())


def _tower_layer(prefix: str, hidden: int, inner: int) -> Iterator[Weight]:
    yield from plain_attention(f"{prefix}self_attn.", ("q_proj", "k_proj", "v_proj", "o_proj"), hidden, bias=False)
    yield from plain_mlp(f"{prefix}mlp.", ("fc1", "fc2"), hidden, inner)
    names = ("input_layernorm", "post_attention_layernorm")
    yield from weights.norms(prefix, names, hidden, bias=True, part="vision")
